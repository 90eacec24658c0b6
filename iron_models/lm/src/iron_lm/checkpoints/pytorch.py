"""What Hugging Face's programs wrote with torch.save: pytorch_model.bin, whole or in parts, read without running what is in it."""

from __future__ import annotations

from pathlib import Path

from iron_lm.checkpoints.hub_files import HubFiles
from iron_lm.checkpoints.meta import MetaFolder
from iron_lm.checkpoints.safetensors import SafetensorsFile
from iron_lm.checkpoints.state_dict import state_dict

#: A zip file's first entry: its header, and the name of what torch.save writes first.
_ZIP, _PICKLE = b"PK\3\4", b"/data.pkl"


class PyTorchFile(HubFiles):
    """An open `pytorch_model.bin`, one of several parts, a sharded index, or the folder holding any of these.

    In a folder that has safetensors too, those are the checkpoint, as they are to transformers.
    """

    kind = "pytorch"
    label = "PyTorch"
    pattern = "pytorch_model*.bin"
    index = "pytorch_model.bin.index.json"
    read = staticmethod(state_dict)

    @classmethod
    def sniff(cls, path: str | Path, head: bytes) -> bool:
        """Is it such a file, an index of some, a folder with either and no safetensors, or any other state dict in a zip?"""
        path = Path(path)
        if path.is_dir():
            return cls.held(path) and not SafetensorsFile.held(path)
        if MetaFolder.sniff(path, head):
            return False
        saved = head.startswith(_ZIP) and _PICKLE in head[30:]
        return saved or path.match(cls.pattern) or path.name.endswith(".bin.index.json")
