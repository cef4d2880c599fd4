/** An entry of an ABI as viem and ethers take it. */
export interface AbiParameter {
  name: string;
  type: string;
  components?: AbiParameter[];
  indexed?: boolean;
}
export type AbiEntry =
  | { type: "function"; name: string; inputs: AbiParameter[]; outputs: AbiParameter[]; stateMutability: "view" | "pure" | "payable" | "nonpayable" }
  | { type: "event"; name: string; inputs: AbiParameter[]; anonymous: boolean }
  | { type: "error"; name: string; inputs: AbiParameter[] };

/** What IndexedDB can keep of a pack: its fields. */
export interface PackState {
  readonly form: "texts" | "indexed";
  /** The version of the warehouse that it was made from. */
  readonly version: number;
  readonly indexes: Readonly<Record<string, unknown>>;
}

/** Bytes that are no pack, or one that cannot be trusted. The message says why. */
export class BadPack extends Error {}

/** The texts of selectors and topics, best first. */
export class Pack implements PackState {
  readonly form: PackState["form"];
  readonly version: number;
  readonly indexes: PackState["indexes"];
  /** A pack that was kept: `new Pack(kept)`, where `kept` was `{ ...pack }`. It is not unpacked again. */
  constructor(state: PackState);
  /**
   * Open a pack. Each text of the form for transport is checked and hashed. Rejects with BadPack.
   * `key`, 64 hex digits, is the public key that must have signed it.
   */
  static open(bytes: Uint8Array | ArrayBuffer, options?: { key?: string }): Promise<Pack>;
  /** The number of texts. */
  readonly size: number;
  /**
   * The texts of a selector ("0x" and 8 hex digits) or a topic (64 digits). Throws TypeError for another hash.
   * Each is checked and hashed: a text under another hash than its own is BadPack.
   */
  lookup(hash: string): string[];
  /** The declarations of those texts that have one: "function transfer(address to, uint256 value) returns (bool)". */
  declarations(hash: string): string[];
  /** The same as entries of an ABI. */
  abi(hash: string): AbiEntry[];
}
