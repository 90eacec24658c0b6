"""Stand-ins for the vendor's programs: they note how they were called, and leave such files as the real ones, made of their inputs."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import attrs

from iron_npu.settings import Settings

#: What each begins with: note the call, and do as `mode` says.
HEAD = f"""#!{sys.executable} -SE
import json, os, re, sys, time
here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
argv, name = sys.argv[1:], os.path.basename(sys.argv[0])
if "--version" in argv:
    print(name, "20.0.0, stand-in")
    sys.exit(0)
with open(f"{{here}}/../calls", "a") as calls:
    calls.write(json.dumps([name, *argv]) + "\\n")
mode = f"{{here}}/../mode-{{name}}"
mode = open(mode).read() if os.path.exists(mode) else ""
if mode.startswith("fail"):
    print("note: on we go\\n" + mode[5:], file=sys.stderr)
    sys.exit(1)
if mode.startswith("sleep"):
    time.sleep(float(mode[6:]))
if mode == "killed":
    os.kill(os.getpid(), 9)
def of(flag, usual=None):
    return next((a.partition("=")[2] for a in argv if a.startswith(flag + "=")), usual)
def behind(flag):
    return argv[argv.index(flag) + 1]
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
"""

AIECC = """
text, work, out = open(argv[0]).read(), of("--tmpdir"), of("--output-dir")
if mode == "nothing":
    sys.exit(0)
(device,) = re.findall(r"aie.device\\(\\w+\\) @(\\w+)", text)[-1:] or ["main"]
linked = "".join(open(f"{work}/{file}").read() for file in sorted(set(re.findall(r'link_with = "([^"]+)"', text))))
if "--get-npu-insts" in argv:
    for sequence in re.findall(r"aie.runtime_sequence @(\\w+)", text):
        write(f"{out}/" + of("--npu-insts-name").replace("{0}", f"{device}_{sequence}"), f"stream of {sequence}")
if "--get-input-with-addresses" in argv:
    write(f"{work}/input_with_addresses.mlir", text)
if "--get-xclbin" in argv:
    before = of("--xclbin-input")
    before = open(before).read() if before else ""
    write(f"{out}/" + of("--xclbin-name"), before + of("--xclbin-kernel-name", "MLIR_AIE") + linked + "\\n")
if "--get-full-elf" in argv:
    write(f"{out}/" + of("--full-elf-name"), "elf of " + text + linked)
if "--get-scratchpad-parameters" in argv:
    write(f"{work}/params.txt", "0\\n")
if "--get-core-elfs" in argv:
    parts = re.findall(r"aie.device\\(\\w+\\) @(\\w+)(.*?)(?=aie.device\\(|$)", text, re.DOTALL)
    for device in [name for name, part in parts if "aie.core(" in part] or [device]:
        with open(f"{work}/elfs_{device}_core_0_2.elf", "wb") as file:
            file.write(bytes.fromhex(open(f"{here}/../core-elf").read()))
"""

CLANG = """
source, target = argv[-3], behind("-o")
places = [argv[i + 1] for i, a in enumerate(argv) if a == "-I"]
seen, queue, text = [source], [source], ""
while queue:
    one = queue.pop()
    text += open(one).read()
    for file in re.findall(r'#include "(.*)"', open(one).read()):
        for place in [os.path.dirname(one), *places]:
            path = os.path.join(place, file)
            if os.path.isfile(path) and path not in seen:
                seen.append(path)
                queue.append(path)
if mode == "nothing":
    sys.exit(0)
if "#error" in text:
    print(f"{source}:1:2: error: " + text.partition("#error ")[2].partition("\\n")[0], file=sys.stderr)
    sys.exit(1)
write(target, "".join(a + " " for a in argv if a.startswith(("-D", "--target"))) + text)
if behind("-MF"):
    write(behind("-MF"), f"{target}: " + " \\\\\\n  ".join(path.replace(" ", "\\\\ ") for path in seen) + "\\n")
"""

PROGRAMS = {
    "aiecc": AIECC,
    "aie-opt": 'write(behind("-o"), open(next(a for a in argv if a.endswith(".mlir"))).read())',
    "aie-translate": 'write(behind("-o"), "// builds streams of " + open(argv[1]).read())',
    "clang++": CLANG,
    "llvm-objcopy": 'write(argv[-1], open(argv[-1]).read() + "objcopy " + " ".join(argv[:-1]) + "\\n")',
    "ld.lld": 'write(behind("-o"), "".join(open(a).read() for a in argv[3:]))',
    "xclbinutil": "",
}
MLIR_AIE, PEANO, XRT = ("aiecc", "aie-opt", "aie-translate"), ("clang++", "llvm-objcopy", "ld.lld"), ("xclbinutil",)


def core_elf(*segments: tuple[int, int, int]) -> bytes:
    """A core's ELF of 32-bit words with segments (flags, address, bytes)."""
    header = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 2, 264, 1, 0, 52, 0, 0, 52, 32, len(segments), 0, 0, 0)
    for flags, address, length in segments:
        header += struct.pack("<IIIIIIII", 1, 0, address, address, 0, length, flags, 1)
    return header


@attrs.frozen
class Vendor:
    """A folder with the stand-ins installed: mlir-aie, Peano and XRT, each below a folder of its own."""

    folder: Path
    settings: Settings

    @classmethod
    def install(cls, folder: Path, cache: Path) -> Vendor:
        for owner, names in (("mlir-aie", MLIR_AIE), ("peano", PEANO), ("xrt", XRT)):
            for name in names:
                path = folder / owner / "bin" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{HEAD}\n{PROGRAMS[name]}\n")
                path.chmod(0o755)
        (folder / "core-elf").write_text(core_elf((5, 0, 0x1234), (6, 0x70000, 0x400)).hex())
        places = {"mlir_aie": folder / "mlir-aie", "peano": folder / "peano", "xrt": folder / "xrt"}
        return cls(folder, Settings(path="/usr/bin:/bin", cache_home=cache, **places))

    def mode(self, program: str, mode: str = "") -> None:
        """What a program does from now on: "fail: words", "sleep: seconds", "nothing", or as usual."""
        (self.folder / f"mode-{program}").write_text(mode)

    def calls(self, program: str = "") -> list[list[str]]:
        """How programs were called, or one of them."""
        file = self.folder / "calls"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if not program or line[0] == program]

    def edited(self, program: str) -> None:
        """A program is another one from now on."""
        path = next(self.folder.glob(f"*/bin/{program}"))
        text = path.read_text()
        path.unlink()
        path.write_text(text + "# another\n")
        path.chmod(0o755)

    def with_(self, **changed: Any) -> Settings:
        return attrs.evolve(self.settings, **changed)
