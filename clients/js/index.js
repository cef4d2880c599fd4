// Reads packs: one file with the texts of Ethereum selectors and topics, which `sigdir export pack` writes.
// docs/packs.md has the format. Runs in Node from 20 on and in browsers, without dependencies.

const MAGIC = "sigpack\n", FORMAT = 1;
const HEAD_BYTES = 16, TRAILER_BYTES = 128; // the trailer is the digest, a public key and its signature
const MAX_BYTES = 2 ** 30, MAX_ROWS = 2 ** 24, MAX_TEXT_BYTES = 65536, MAX_TUPLES = 32;
const COLLECTIONS = ["signatures", "event-signatures"], COLUMNS = { texts: 6, indexed: 5 };
const LINE_BREAK = 10, RATE = 136;

const latin = new TextDecoder("latin1"), utf8 = new TextEncoder();

/** Bytes that are no pack, or one that cannot be trusted. */
export class BadPack extends Error {
  name = "BadPack";
}

function check(holds, problem) {
  if (!holds) throw new BadPack(problem);
}

/** The texts of selectors and topics, best first. */
export class Pack {
  /** IndexedDB can keep `{ ...pack }`: `new Pack` takes it, and neither unpacks nor hashes again. */
  constructor({ form, version, indexes }) {
    Object.assign(this, { form, version, indexes });
  }

  /** Open a pack from its bytes. `key`, 64 hex digits, is the public key that must have signed it. */
  static async open(bytes, { key } = {}) {
    let data = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    if (data.byteOffset % 4) data = data.slice(); // columns of numbers are read where they are
    const { header, at } = await checkedHeader(data, key), indexes = {};
    for (const [name, rows, columns] of await columnsOf(data, header, at)) {
      const index = (indexes[name] = header.form === "texts" ? indexOf(name, rows, columns) : mapped(columns));
      check(index.prefixes.length === rows && index.starts.length === rows, `${name}: columns of wrong lengths`);
    }
    return new Pack({ form: header.form, version: header.version, indexes });
  }

  /** The number of texts. */
  get size() {
    return Object.values(this.indexes).reduce((sum, { prefixes }) => sum + prefixes.length, 0);
  }

  /** The texts of a selector ("0x" and 8 hex digits) or a topic (64 digits), best first. */
  lookup(hash) {
    return this.#found(hash).map(([text]) => text);
  }

  /** The declarations of those texts that have one, in their order: "function f(address to) returns (bool)". */
  declarations(hash) {
    return this.#declared(hash).map(([declaration]) => declaration);
  }

  /** The same as entries of an ABI. */
  abi(hash) {
    return this.#declared(hash).map(([, parsed]) => abiEntry(parsed));
  }

  #found(hash) {
    const digits = String(hash).toLowerCase().replace(/^0x/, "");
    if (!/^(?:[0-9a-f]{8}|[0-9a-f]{64})$/.test(digits)) throw new TypeError("a selector has 8 hex digits, a topic 64");
    const index = this.indexes[COLLECTIONS[digits.length === 8 ? 0 : 1]];
    if (!index) return [];
    const prefix = parseInt(digits.slice(0, 8), 16), found = [];
    for (let at = firstAt(index.prefixes, prefix); index.prefixes[at] === prefix; at++) {
      const text = lineAt(index.texts, index.starts[at]);
      if (digits.length === 8 || digestOf(text) === digits) found.push([text, index, at]);
    }
    return found;
  }

  #declared(hash) {
    const found = [];
    for (const [text, index, at] of this.#found(hash)) {
      const declaration = index.declaredAt.length ? lineAt(index.declared, index.declaredAt[at]) : "";
      if (!declaration) continue;
      const parsed = parseDeclaration(declaration), isRight = (parsed.kind === "event") === String(hash).length > 10;
      check(isRight && canonicalText(parsed.name, parsed.inputs) === text, `the declaration of ${text} is of another text`);
      found.push([declaration, parsed]);
    }
    return found;
  }
}

// The frame: header, digest and signature.

async function checkedHeader(data, key) {
  check(latin.decode(data.subarray(0, 8)) === MAGIC, "it is no pack: it does not begin as one");
  check(data.length >= HEAD_BYTES + TRAILER_BYTES, "it was cut short");
  check(data.length <= MAX_BYTES, "it is too large");
  const view = new DataView(data.buffer, data.byteOffset), format = view.getUint32(8, true);
  check(format === FORMAT, `its format has the number ${format}; this reader knows ${FORMAT}`);
  const end = data.length - TRAILER_BYTES, at = HEAD_BYTES + view.getUint32(12, true);
  check(at <= Math.min(end, HEAD_BYTES + 65536), "its header is too long, or it was cut short");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data.subarray(0, end)));
  check(hex(digest) === hex(data.subarray(end, end + 32)), "its digest differs: it was cut short or changed");
  if (key !== undefined) await checkSignature(digest, data.subarray(end + 32, end + 64), data.subarray(end + 64), key);
  try {
    const header = JSON.parse(latin.decode(data.subarray(HEAD_BYTES, at)));
    const names = header.collections.map(({ name }) => name), wanted = COLUMNS[header.form];
    if (names.every((name, number) => COLLECTIONS.includes(name) && names.indexOf(name) === number))
      if (header.collections.every(({ columns: all }) => all.length === wanted && all.every(({ length }) => length === 2)))
        return { header, at };
  } catch {} // as what is said below
  throw new BadPack("its header cannot be read, or has other collections or columns than this reader knows");
}

async function checkSignature(digest, signer, signature, key) {
  const wanted = String(key).trim().toLowerCase().replace(/^0x/, "");
  if (!/^[0-9a-f]{64}$/.test(wanted)) throw new TypeError("a public key has 64 hex digits");
  check(signer.some(Boolean) || signature.some(Boolean), "it is not signed, and a key was given");
  check(hex(signer) === wanted, `it is signed by another key, ${hex(signer)}`);
  const message = new Uint8Array([...utf8.encode(MAGIC), ...digest]);
  const imported = await crypto.subtle.importKey("raw", signer, "Ed25519", false, ["verify"]);
  check(await crypto.subtle.verify("Ed25519", imported, signature, message), "its signature is wrong");
}

async function columnsOf(data, header, at) {
  const found = [], end = data.length - TRAILER_BYTES;
  let left = MAX_BYTES;
  for (const { name, texts, columns } of header.collections) {
    const parts = [];
    check(isSize(texts) && texts <= MAX_ROWS, `${name}: its number of texts cannot be`);
    for (const [packed, size] of columns) {
      check(isSize(packed) && isSize(size) && (left -= size) >= 0 && packed <= end - at, "its columns are too long");
      const part = data.subarray(at, at + packed);
      parts.push(header.form === "texts" ? await unpacked(part, size) : part);
      at += packed + ((4 - (packed % 4)) % 4);
    }
    found.push([name, texts, parts]);
  }
  check(at === end, "its columns do not end where it ends");
  return found;
}

const isSize = (value) => Number.isInteger(value) && value >= 0 && value <= MAX_BYTES;

/** A column of so many bytes. No more are unpacked, however many there are. */
async function unpacked(part, size) {
  let left = size;
  const limit = { transform: (piece, out) => ((left -= piece.length) < 0 ? out.error() : out.enqueue(piece)) };
  const stream = new Blob([part]).stream().pipeThrough(new DecompressionStream("deflate")).pipeThrough(new TransformStream(limit));
  const found = await new Response(stream).arrayBuffer().catch(() => undefined);
  check(found && left === 0, "a column cannot be unpacked, or has another length than the header says");
  return new Uint8Array(found);
}

// The form for lookups.

const asNumbers = (bytes) => new Uint32Array(bytes.buffer, bytes.byteOffset, Math.floor(bytes.length / 4));

const mapped = ([prefixes, starts, texts, declaredAt, declared]) => ({
  prefixes: asNumbers(prefixes), starts: asNumbers(starts), texts, declaredAt: asNumbers(declaredAt), declared,
});

/** The first place whose number is not below `wanted`. */
function firstAt(numbers, wanted) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function lineAt(lines, start) {
  const end = lines.indexOf(LINE_BREAK, start);
  check(end >= 0, "a text does not end");
  return latin.decode(lines.subarray(start, end));
}

/** The form for lookups of the columns for transport: each text is made, checked and hashed. */
function indexOf(name, rows, [shared, rests, numbers, lists, places, declared]) {
  const table = linesOf(lists).map(checkedList), names = linesOf(rests), declarations = linesOf(declared);
  const isWhole = names.length === rows && shared.length === rows && numbers.length === 3 * rows;
  check(isWhole && [0, rows].includes(declarations.length), `${name}: columns of other lengths than its number of texts`);
  const of = Uint32Array.from(names, (_, row) => numbers[row] + 256 * numbers[rows + row] + 65536 * numbers[2 * rows + row]);
  const texts = new Uint8Array(sizeOf(shared, names, of, table)), starts = new Uint32Array(rows);
  const positions = new Map(linesOf(places).map((line) => line.split(" ").map(Number)));
  const keys = new Uint32Array(2 * rows); // place, row and hash, which sort as one number of 64 bits
  for (let row = 0, at = 0, text = ""; row < rows; row++) {
    text = text.slice(0, shared[row]) + names[row];
    check(/^(?!function$)[A-Za-z_$][A-Za-z0-9_$]*$/.test(text), `a text that is not canonical: ${text.slice(0, 80)}`);
    starts[row] = at;
    at += utf8.encodeInto(`${text}${table[of[row]]}\n`, texts.subarray(at)).written;
    absorb(texts, starts[row], at - 1);
    keys[2 * row] = row + MAX_ROWS * (Math.min(positions.get(row) ?? 1, 256) - 1);
    keys[2 * row + 1] = words.getUint32(0);
  }
  new BigUint64Array(keys.buffer).sort();
  const order = keys.filter((_, at) => at % 2 === 0).map((key) => key % MAX_ROWS), prefixes = keys.filter((_, at) => at % 2);
  checkDistinct(prefixes, (at) => lineAt(texts, starts[order[at]]));
  let end = 0;
  const declaredAt = Uint32Array.from(declarations, ({ length }) => (end += length + 1) - length - 1);
  const inOrder = (column) => (column.length ? order.map((row) => column[row]) : column);
  return { prefixes, starts: inOrder(starts), texts, declaredAt: inOrder(declaredAt), declared };
}

/** The bytes of all texts, added up before one is made. */
function sizeOf(shared, names, of, table) {
  let size = 0, name = 0;
  for (let row = 0; row < names.length; row++) {
    check(shared[row] <= name && of[row] < table.length, "a text begins or ends as none of the pack does");
    name = shared[row] + names[row].length;
    size += name + table[of[row]].length + 1;
    check(name + table[of[row]].length <= MAX_TEXT_BYTES && size <= MAX_BYTES, "its texts are too long");
  }
  return size;
}

function checkDistinct(prefixes, textAt) {
  for (let at = 1, seen; at < prefixes.length; at++) {
    if (prefixes[at] !== prefixes[at - 1]) continue;
    if (at < 2 || prefixes[at] !== prefixes[at - 2]) seen = new Set([textAt(at - 1)]);
    check(seen.size < seen.add(textAt(at)).size, "it has a text twice");
  }
}

const linesOf = (bytes) => latin.decode(bytes).split("\n").slice(0, -1);

// Texts and declarations.

const WIDTH = `(?:${Array.from({ length: 32 }, (_, number) => 8 * (number + 1)).join("|")})`;
const TYPE = new RegExp(
  `^(?:address|bool|string|function|tuple|bytes(?:[1-9]|[12]\\d|3[0-2])?|u?int${WIDTH}|u?fixed${WIDTH}x(?:[1-7]\\d|80|[1-9]))` +
    "(?:\\[(?:[1-9]\\d*)?\\])*$");
const isType = ({ type, components }) =>
  TYPE.test(type) && type.startsWith("tuple") === Boolean(components) && (components ?? []).every(isType);

/** A parameter list, which must be canonical: "((uint256,bool)[],address)". */
function checkedList(list) {
  const { inputs } = parseDeclaration(`function f${list}`);
  check(canonicalText("", inputs) === list && inputs.every(isType), `a text that is not canonical: f${list.slice(0, 80)}`);
  return list;
}

/** A declaration as `sigdir` spells it: "function f((uint256 a)[] list, bool) view returns (bool)". */
function parseDeclaration(text) {
  const tokens = text.match(/[(),]|(?:\[\d*\])+|[A-Za-z0-9_$]+|\S/g);
  const take = () => tokens.shift() ?? "", takes = (token) => tokens[0] === token && Boolean(take());
  const list = (level) => {
    const found = [];
    check(takes("(") && level < MAX_TUPLES, `no declaration: ${text.slice(0, 80)}`);
    while (!takes(")")) {
      check(!found.length || takes(","), `no declaration: ${text.slice(0, 80)}`);
      const one = tokens[0] === "(" ? { type: "tuple", components: list(level + 1) } : { type: take() };
      if (tokens[0]?.[0] === "[") one.type += take();
      one.indexed = takes("indexed");
      one.name = /^[\w$]/.test(tokens[0] ?? "") ? take() : "";
      found.push(one);
    }
    return found;
  };
  const kind = take(), name = take(), inputs = list(0);
  const mutability = ["view", "pure", "payable"].includes(tokens[0]) ? take() : "nonpayable";
  const outputs = takes("returns") ? list(0) : [], anonymous = takes("anonymous");
  check(["function", "event", "error"].includes(kind) && !tokens.length, `no declaration: ${text.slice(0, 80)}`);
  return { kind, name, inputs, outputs, mutability, anonymous };
}

const canonicalText = (name, inputs) =>
  `${name}(${inputs.map(({ type, components }) => (components ? canonicalText("", components) + type.slice(5) : type)).join(",")})`;

function abiEntry({ kind, name, inputs, outputs, mutability, anonymous }) {
  const parameter = (ofEvent) => ({ name, type, components, indexed }) => ({
    name, type, ...(components && { components: components.map(parameter(false)) }), ...(ofEvent && { indexed }),
  });
  const entry = { type: kind, name, inputs: inputs.map(parameter(kind === "event")) };
  if (kind === "event") return { ...entry, anonymous };
  return kind === "error" ? entry : { ...entry, outputs: outputs.map(parameter(false)), stateMutability: mutability };
}

// Keccak-256, on words of 64 bits as two of 32, the lower first.

const ROTATIONS = Int32Array.of(1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44);
const PLACES = Int32Array.of(10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1);
const IOTA = Int32Array.of(0x1, 0x8082, 0x808a, 0x80008000, 0x808b, 0x80000001, 0x80008081, 0x8009, 0x8a, 0x88, 0x80008009,
  0x8000000a, 0x8000808b, 0x8b, 0x8089, 0x8003, 0x8002, 0x80, 0x800a, 0x8000000a, 0x80008081, 0x8080, 0x80000001,
  0x80008008); // their lower words
const IOTA_SIGNS = 0xbbe0cc; // bit n: whether the upper word of number n is 0x80000000 and not 0

const state = new Int32Array(50), bytesOfState = new Uint8Array(state.buffer), words = new DataView(state.buffer);

/** Keccak-f on the state `s`. Its columns are in variables, because arrays in their place take twice as long. */
function permute(s) {
  for (let round = 0; round < 24; round++) {
    let a = s[0] ^ s[10] ^ s[20] ^ s[30] ^ s[40], b = s[1] ^ s[11] ^ s[21] ^ s[31] ^ s[41];
    let c = s[2] ^ s[12] ^ s[22] ^ s[32] ^ s[42], d = s[3] ^ s[13] ^ s[23] ^ s[33] ^ s[43];
    const e = s[4] ^ s[14] ^ s[24] ^ s[34] ^ s[44], f = s[5] ^ s[15] ^ s[25] ^ s[35] ^ s[45];
    const g = s[6] ^ s[16] ^ s[26] ^ s[36] ^ s[46], h = s[7] ^ s[17] ^ s[27] ^ s[37] ^ s[47];
    const i = s[8] ^ s[18] ^ s[28] ^ s[38] ^ s[48], j = s[9] ^ s[19] ^ s[29] ^ s[39] ^ s[49];
    mix(s, 0, i ^ ((c << 1) | (d >>> 31)), j ^ ((d << 1) | (c >>> 31)));
    mix(s, 2, a ^ ((e << 1) | (f >>> 31)), b ^ ((f << 1) | (e >>> 31)));
    mix(s, 4, c ^ ((g << 1) | (h >>> 31)), d ^ ((h << 1) | (g >>> 31)));
    mix(s, 6, e ^ ((i << 1) | (j >>> 31)), f ^ ((j << 1) | (i >>> 31)));
    mix(s, 8, g ^ ((a << 1) | (b >>> 31)), h ^ ((b << 1) | (a >>> 31)));
    for (let step = 0, low = s[2], high = s[3]; step < 24; step++) {
      const by = ROTATIONS[step], place = 2 * PLACES[step], first = by > 31 ? high : low, second = by > 31 ? low : high;
      low = s[place];
      high = s[place + 1];
      s[place] = (first << by) | (second >>> -by); // shifts count modulo 32, and none is by 0 or 32 bits
      s[place + 1] = (second << by) | (first >>> -by);
    }
    for (let y = 0; y < 50; y += 10) {
      (a = s[y]), (b = s[y + 1]), (c = s[y + 2]), (d = s[y + 3]);
      for (let x = y; x < y + 6; x++) s[x] ^= ~s[x + 2] & s[x + 4];
      (s[y + 6] ^= ~s[y + 8] & a), (s[y + 7] ^= ~s[y + 9] & b), (s[y + 8] ^= ~a & c), (s[y + 9] ^= ~b & d);
    }
    (s[0] ^= IOTA[round]), (s[1] ^= ((IOTA_SIGNS >> round) & 1) << 31);
  }
}

function mix(s, x, low, high) {
  for (let y = x; y < 50; y += 10) (s[y] ^= low), (s[y + 1] ^= high);
}

/** Leave the digest of a piece of bytes in the first 32 bytes of the state. */
function absorb(bytes, start, end) {
  let at = 0;
  state.fill(0);
  for (let from = start; from < end; from++) {
    bytesOfState[at++] ^= bytes[from];
    if (at === RATE) permute(state), (at = 0);
  }
  bytesOfState[at] ^= 1;
  bytesOfState[RATE - 1] ^= 128;
  permute(state);
}

/** The digest of a text, as hex digits. */
function digestOf(text) {
  absorb(utf8.encode(text), 0, text.length);
  return hex(bytesOfState.subarray(0, 32));
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
