// SPDX-License-Identifier: MIT
pragma solidity ^0.8.24;

type Price is uint128;

interface IToken {
    event Transfer(address indexed from, address indexed to, uint256 value);
    function transfer(address to, uint256 value) external returns (bool);
}

library Book {
    struct Order { address maker; Price price; uint8[2] sides; }
    error Closed(Order order);
    function insert(Order storage order, uint256 place) external {}
}

contract Token is IToken {
    enum Side { Buy, Sell }

    mapping(address owner => mapping(Side => uint256)) public placed;

    event Placed(Book.Order order, Side indexed side);
    event Raw(bytes data) anonymous;
    error Denied(address who);

    function transfer(address to, uint256 value) external returns (bool) {
        emit Transfer(msg.sender, to, value);
        return true;
    }

    function place(Book.Order calldata order, Side side) external {
        if (side == Side.Sell) revert Denied(order.maker);
        if (order.maker == address(0)) revert Book.Closed(order);
        emit Placed(order, side);
        emit Raw("");
    }
}
