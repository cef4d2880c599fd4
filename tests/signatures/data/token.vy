# The contract of vyper.json. Versions before 0.4 were given the same with their own syntax for constructors and logs.
# pragma version ~=0.4.0
event Transfer:
    sender: indexed(address)
    receiver: indexed(address)
    amount: uint256
event Approval:
    owner: indexed(address)
    spender: indexed(address)
    amount: uint256
name: public(String[32])
symbol: public(String[32])
decimals: public(uint8)
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
totalSupply: public(uint256)
OWNER: immutable(address)
@deploy
def __init__(n: String[32]):
    self.name = n
    OWNER = msg.sender
@external
def transfer(to: address, amount: uint256) -> bool:
    self.balanceOf[msg.sender] -= amount
    self.balanceOf[to] += amount
    log Transfer(sender=msg.sender, receiver=to, amount=amount)
    return True
@external
def transferFrom(frm: address, to: address, amount: uint256) -> bool:
    self.allowance[frm][msg.sender] -= amount
    self.balanceOf[frm] -= amount
    self.balanceOf[to] += amount
    log Transfer(sender=frm, receiver=to, amount=amount)
    return True
@external
def approve(spender: address, amount: uint256) -> bool:
    self.allowance[msg.sender][spender] = amount
    log Approval(owner=msg.sender, spender=spender, amount=amount)
    return True
@external
def mint(to: address, amount: uint256 = 5, xs: DynArray[uint256, 4] = []):
    assert msg.sender == OWNER
    self.balanceOf[to] += amount
@external
@view
def owner() -> address:
    return OWNER
@external
@payable
def pay(): 
    pass
@external
@nonreentrant
def exec(data: Bytes[100], who: address[3]): 
    pass
