// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// A small token that takes several calls at once: the contract of docs/clients.md and of the examples beside this file.
contract Token {
    mapping(address => uint256) public balanceOf;
    uint256 public totalSupply = 1000;

    event Transfer(address indexed from, address indexed to, uint256 value);
    error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed);

    constructor() {
        balanceOf[msg.sender] = totalSupply;
    }

    function transfer(address to, uint256 value) public returns (bool) {
        uint256 balance = balanceOf[msg.sender];
        if (balance < value) revert ERC20InsufficientBalance(msg.sender, balance, value);
        balanceOf[msg.sender] = balance - value;
        balanceOf[to] += value;
        emit Transfer(msg.sender, to, value);
        return true;
    }

    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool done, bytes memory result) = address(this).delegatecall(data[i]);
            if (!done) {
                assembly {
                    revert(add(result, 32), mload(result))
                }
            }
            results[i] = result;
        }
    }
}
