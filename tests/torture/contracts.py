"""A contract with its ABI, its descriptor, and how often its functions are used, as files for two imports."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.serve.support import selector

_FUNCTIONS = 20


@dataclass(frozen=True, slots=True)
class ImportedContract:
    """The contract of a round. How often a function is used is ``count`` and its number."""

    round: int
    count: int

    @property
    def address(self) -> str:
        return f"0x{self.round:040x}"

    @property
    def texts(self) -> list[str]:
        return [f"c{self.round}x{number}(address,uint256)" for number in range(_FUNCTIONS)]

    def abi_files(self) -> dict[str, str]:
        """An ABI that the contract's address names, and a descriptor of its first function."""
        inputs = [{"name": "to", "type": "address"}, {"name": "amount", "type": "uint256"}]
        outputs = [{"name": "left", "type": "uint256"}]
        names = (text.partition("(")[0] for text in self.texts)
        abi = [{"type": "function", "name": name, "inputs": inputs, "outputs": outputs} for name in names]
        described = self.texts[0].replace("address,uint256", "address to,uint256 amount")
        fields = [{"path": "amount", "label": "Amount", "format": "raw"}]
        document = {
            "$schema": "https://eips.ethereum.org/assets/eip-7730/erc7730-v2.schema.json",
            "context": {"contract": {"deployments": [{"chainId": 1, "address": self.address}]}},
            "display": {"formats": {described: {"intent": f"Round {self.round}", "fields": fields}}},
        }
        return {f"{self.address}.json": json.dumps(abi), "descriptor.json": json.dumps(document)}

    def usage_files(self) -> dict[str, str]:
        lines = (f"{selector(text)},{self.count + number}\n" for number, text in enumerate(self.texts))
        return {"usage.csv": "".join(["selector,count\n", *lines])}
