// Reads packs: one file with the texts of Ethereum selectors and topics, which `sigdir export pack` writes.
// docs/packs.md has the format. Runs in Node from 20 on and in browsers, without dependencies.

const MAGIC = "sigpack\n", FORMAT = 1;
const HEAD_BYTES = 24, TRAILER_BYTES = 128, LINE_BREAK = 10, RATE = 136; // the trailer is the digest, a public key and its signature
const MAX_BYTES = 2 ** 30, MAX_ROWS = 2 ** 24, MAX_TEXT_BYTES = 65536, MAX_TUPLES = 32;
const COLLECTIONS = ["signatures", "event-signatures"], KEYWORDS = ["function", "event"], FORMS = ["texts", "indexed"], COLUMNS = 5;

const latin = new TextDecoder("latin1"), utf8 = new TextEncoder();

/** Bytes that are no pack, or one that cannot be trusted. */
export class BadPack extends Error { name = "BadPack"; }

function check(holds, problem) {
  if (!holds) throw new BadPack(problem);
}

/** The texts of selectors and topics, best first. */
export class Pack {
  /** IndexedDB can keep `{ ...pack }`: `new Pack` takes it, and does not unpack it again. */
  constructor({ form, version, indexes }) {
    Object.assign(this, { form, version, indexes });
  }

  /** Open a pack from its bytes. `key`, 64 hex digits, is the public key that must have signed it. */
  static async open(bytes, { key } = {}) {
    let data = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    if (data.byteOffset % 4) data = data.slice(); // columns of numbers are read where they are
    const { form, version, described, at } = await checkedHeader(data, key), indexes = {};
    for (const [name, rows, columns] of await columnsOf(data, form, described, at)) {
      const index = (indexes[name] = form === "texts" ? indexOf(name, rows, columns) : mapped(columns));
      check(index.prefixes.length === rows && index.starts.length === rows, `${name}: columns of wrong lengths`);
    }
    return new Pack({ form, version, indexes });
  }

  /** The number of texts. */
  get size() { return Object.values(this.indexes).reduce((sum, { prefixes }) => sum + prefixes.length, 0); }

  /** The texts of a selector ("0x" and 8 hex digits) or a topic (64 digits), best first. */
  lookup(hash) { return this.#found(hash).map(([text]) => text); }

  /** The declarations of those texts that have one, in their order: "function f(address to) returns (bool)". */
  declarations(hash) { return this.#declared(hash).map(([declaration]) => declaration); }

  /** The same as entries of an ABI. */
  abi(hash) { return this.#declared(hash).map(([, parsed]) => abiEntry(parsed)); }

  #found(hash) {
    const digits = String(hash).toLowerCase().replace(/^0x/, "");
    if (!/^(?:[0-9a-f]{8}|[0-9a-f]{64})$/.test(digits)) throw new TypeError("a selector has 8 hex digits, a topic 64");
    const collection = digits.length === 8 ? 0 : 1, index = this.indexes[COLLECTIONS[collection]];
    if (!index) return [];
    const first = digits.slice(0, 8), prefix = parseInt(first, 16), found = [], read = new Set();
    for (let at = firstAt(index.prefixes, prefix); index.prefixes[at] === prefix; at++) {
      const text = lineAt(index.texts, index.starts[at]);
      check(read.size < read.add(text).size, "it has a text twice"); // a small pack would take the time of a large one
      checkText(text, KEYWORDS[collection]);
      const digest = digestOf(text);
      check(digest.startsWith(first), `it has ${text.slice(0, 80)} under 0x${first}, which is not of its hash`);
      if (digest.startsWith(digits)) found.push([text, index, at]);
    }
    return found;
  }

  #declared(hash) {
    const found = [];
    for (const [text, index, at] of this.#found(hash)) {
      const declaration = index.declaredAt.length ? lineAt(index.declared, index.declaredAt[at]) : "";
      if (!declaration) continue;
      const parsed = parseDeclaration(declaration), isRight = (parsed.kind === "event") === String(hash).length > 10;
      const isOfText = isRight && canonicalText(parsed.name, parsed.inputs) === text && parsed.outputs.every(isType);
      check(isOfText, `the declaration of ${text} is of another text`);
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
  const end = data.length - TRAILER_BYTES, digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data.subarray(0, end)));
  check(hex(digest) === hex(data.subarray(end, end + 32)), "its digest differs: it was cut short or changed");
  if (key !== undefined) await checkSignature(digest, data.subarray(end + 32, end + 64), data.subarray(end + 64), key);
  const form = FORMS[view.getUint32(12, true)], count = view.getUint32(20, true), size = 8 + 8 * COLUMNS, at = HEAD_BYTES + count * size;
  check(form && count <= COLLECTIONS.length && at <= end, "it has another form, or more collections than there are");
  const described = Array.from({ length: count }, (_, number) => asNumbers(data.subarray(HEAD_BYTES + number * size, HEAD_BYTES + (number + 1) * size)));
  const codes = described.map(([code]) => code);
  check(codes.every((code, number) => COLLECTIONS[code - 1] && codes.indexOf(code) === number), "it has an unknown collection, or one twice");
  return { form, version: view.getUint32(16, true), described, at };
}

async function checkSignature(digest, signer, signature, key) {
  const wanted = String(key).trim().toLowerCase().replace(/^0x/, "");
  if (!/^[0-9a-f]{64}$/.test(wanted)) throw new TypeError("a public key has 64 hex digits");
  check(signer.some(Boolean) || signature.some(Boolean), "it is not signed, and a key was given");
  check(hex(signer) === wanted, `it is signed by another key, ${hex(signer)}`);
  const imported = await crypto.subtle.importKey("raw", signer, "Ed25519", false, ["verify"]);
  check(await crypto.subtle.verify("Ed25519", imported, signature, new Uint8Array([...utf8.encode(MAGIC), ...digest])), "its signature is wrong");
}

async function columnsOf(data, form, described, at) {
  const found = [], end = data.length - TRAILER_BYTES;
  let left = MAX_BYTES;
  for (const [code, rows, ...sizes] of described) {
    const parts = [];
    check(rows <= MAX_ROWS, "it has too many texts");
    for (let column = 0; column < 2 * COLUMNS; column += 2) {
      const packed = sizes[column], size = sizes[column + 1];
      check((left -= size) >= 0 && packed <= end - at, "its columns are too long");
      const part = data.subarray(at, at + packed);
      parts.push(form === "texts" ? await unpacked(part, size) : part);
      at += packed + ((4 - (packed % 4)) % 4);
    }
    found.push([COLLECTIONS[code - 1], rows, parts]);
  }
  check(at <= end && !data.subarray(at, end).some(Boolean), "its columns do not end where it ends");
  return found;
}

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
  let low = 0;
  for (let high = numbers.length; low < high; ) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function lineAt(lines, start) {
  const end = lines.indexOf(LINE_BREAK, start);
  check(end >= 0, "a text does not end");
  return textOf(lines, start, end);
}

/** The form for lookups of the columns for transport: each text is made, checked and hashed. */
function indexOf(name, rows, [shared, rests, lists, places, declared]) {
  const restAt = lineStarts(rests), listAt = lineStarts(lists), declaredAt = lineStarts(declared), keyword = KEYWORDS[COLLECTIONS.indexOf(name)];
  const isWhole = [restAt.length, listAt.length, shared.length + 1, places.length + 1].every((lines) => lines === rows + 1);
  check(isWhole && [1, rows + 1].includes(declaredAt.length), `${name}: columns of other lengths than its number of texts`);
  new Set(linesOf(lists)).forEach(checkList);
  const starts = textStarts(shared, restAt, listAt), texts = new Uint8Array(starts[rows]);
  const keys = new Uint32Array(2 * rows); // place, row and hash, which sort as one number of 64 bits
  for (let row = 0; row < rows; row++) {
    const start = starts[row], rest = start + shared[row], list = rest + restAt[row + 1] - restAt[row] - 1;
    if (row) copy(texts, starts[row - 1], texts, start, rest);
    copy(rests, restAt[row], texts, rest, list);
    checkName(texts, start, rest, list, keyword);
    copy(lists, listAt[row], texts, list, starts[row + 1]);
    absorb(texts, start, starts[row + 1] - 1);
    (keys[2 * row] = row + MAX_ROWS * places[row]), (keys[2 * row + 1] = digestWord(0));
  }
  new BigUint64Array(keys.buffer).sort();
  const order = new Uint32Array(rows), prefixes = new Uint32Array(rows);
  for (let at = 0; at < rows; at++) (order[at] = keys[2 * at] % MAX_ROWS), (prefixes[at] = keys[2 * at + 1]);
  checkDistinct(prefixes, (at) => lineAt(texts, starts[order[at]]));
  const inOrder = (column) => (column.length > 1 ? order.map((row) => column[row]) : new Uint32Array(0));
  return { prefixes, starts: inOrder(starts), texts, declaredAt: inOrder(declaredAt), declared };
}

/** Where each line begins, and where the last one ends. */
function lineStarts(lines) {
  const starts = new Uint32Array(lines.reduce((count, byte) => count + (byte === LINE_BREAK), 1));
  for (let at = 0, line = 0; at < lines.length; at++) if (lines[at] === LINE_BREAK) starts[++line] = at + 1;
  check(starts.at(-1) === lines.length, "its last line does not end");
  return starts;
}

/** Where each text begins, and where the last one ends: all is added up before one is made. */
function textStarts(shared, restAt, listAt) {
  const starts = new Uint32Array(shared.length + 1);
  for (let row = 0, name = 0; row < shared.length; row++) {
    check(shared[row] <= name, "a name shares more bytes than the name before it has");
    name = shared[row] + restAt[row + 1] - restAt[row] - 1;
    const size = name + listAt[row + 1] - listAt[row];
    check(size <= MAX_TEXT_BYTES + 1 && starts[row] + size <= MAX_BYTES, "its texts are longer than a reader allows");
    starts[row + 1] = starts[row] + size;
  }
  return starts;
}

function copy(source, from, target, start, end) {
  for (let at = start; at < end; at++) target[at] = source[from++];
}

/** A name must be one. What it shares with the name before it, up to `rest`, is. */
function checkName(texts, start, rest, end, keyword) {
  const isKeyword = end - start === keyword.length && textOf(texts, start, end) === keyword;
  let isName = end > start && !isDigit(texts[start]) && !isKeyword;
  for (let at = rest; at < end; at++) isName &&= isDigit(texts[at]) || isLetter(texts[at]);
  check(isName, `a text that is not canonical: ${textOf(texts, start, Math.min(end, start + 80))}`);
}

const isDigit = (byte) => byte >= 48 && byte <= 57;
const isLetter = (byte) => ((byte | 32) >= 97 && (byte | 32) <= 122) || byte === 95 || byte === 36;

const textOf = (bytes, start, end) => latin.decode(bytes.subarray(start, end));

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

function checkText(text, keyword) {
  const list = text.indexOf("(");
  check(text.length <= MAX_TEXT_BYTES, "its texts are longer than a reader allows");
  checkName(utf8.encode(text), 0, 0, list, keyword);
  checkList(text.slice(list));
}

/** A parameter list must be canonical: "((uint256,bool)[],address)". */
function checkList(list) {
  const { inputs } = parseDeclaration(`function f${list}`);
  check(canonicalText("", inputs) === list && inputs.every(isType), `a text that is not canonical: f${list.slice(0, 80)}`);
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
      one.name = /^[A-Za-z_$]/.test(tokens[0] ?? "") ? take() : "";
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

// Keccak-256. A word of 64 bits is two of 32: its even bits, then its odd bits, so that a rotation of it is one of each.

const EVEN_IOTA = 0x50f4f1; // bit n: the lowest even bit of number n, the only one that any has
const ODD_IOTA = Int32Array.of(0x0, 0x89, 0x8000008b, 0x80008080, 0x8b, 0x8000, 0x80008088, 0x80000082, 0xb, 0xa, 0x8082, 0x8003,
  0x808b, 0x8000000b, 0x8000008a, 0x80000081, 0x80000081, 0x80000008, 0x83, 0x80008003, 0x80008088, 0x80000088, 0x8000,
  0x80008082);

const state = new Int32Array(50), spare = new Int32Array(50), block = new Uint8Array(RATE), words = new Int32Array(block.buffer);

const turn = (bits, by) => (bits << by) | (bits >>> (32 - by));

/** A round of Keccak-f. All of it is written out: with loops or calls it takes two to five times as long. */
function round(from, to, number) {
  let a = from[0] ^ from[10] ^ from[20] ^ from[30] ^ from[40], b = from[1] ^ from[11] ^ from[21] ^ from[31] ^ from[41];
  let c = from[2] ^ from[12] ^ from[22] ^ from[32] ^ from[42], d = from[3] ^ from[13] ^ from[23] ^ from[33] ^ from[43];
  let e = from[4] ^ from[14] ^ from[24] ^ from[34] ^ from[44];
  const f = from[5] ^ from[15] ^ from[25] ^ from[35] ^ from[45];
  const g = from[6] ^ from[16] ^ from[26] ^ from[36] ^ from[46], h = from[7] ^ from[17] ^ from[27] ^ from[37] ^ from[47];
  const i = from[8] ^ from[18] ^ from[28] ^ from[38] ^ from[48], j = from[9] ^ from[19] ^ from[29] ^ from[39] ^ from[49];
  const k = i ^ turn(d, 1), l = j ^ c, m = a ^ turn(f, 1), n = b ^ e, o = c ^ turn(h, 1);
  const p = d ^ g, q = e ^ turn(j, 1), r = f ^ i, s = g ^ turn(b, 1), t = h ^ a;
  (a = from[0] ^ k), (b = turn(from[12] ^ m, 22)), (c = turn(from[25] ^ p, 22)), (d = turn(from[37] ^ r, 11)), (e = turn(from[48] ^ s, 7));
  (to[0] = a ^ (~b & c) ^ ((EVEN_IOTA >> number) & 1)), (to[2] = b ^ (~c & d)), (to[4] = c ^ (~d & e)), (to[6] = d ^ (~e & a)), (to[8] = e ^ (~a & b));
  (a = from[1] ^ l), (b = turn(from[13] ^ n, 22)), (c = turn(from[24] ^ o, 21)), (d = turn(from[36] ^ q, 10)), (e = turn(from[49] ^ t, 7));
  (to[1] = a ^ (~b & c) ^ ODD_IOTA[number]), (to[3] = b ^ (~c & d)), (to[5] = c ^ (~d & e)), (to[7] = d ^ (~e & a)), (to[9] = e ^ (~a & b));
  (a = turn(from[6] ^ q, 14)), (b = turn(from[18] ^ s, 10)), (c = turn(from[21] ^ l, 2)), (d = turn(from[33] ^ n, 23)), (e = turn(from[45] ^ p, 31));
  (to[10] = a ^ (~b & c)), (to[12] = b ^ (~c & d)), (to[14] = c ^ (~d & e)), (to[16] = d ^ (~e & a)), (to[18] = e ^ (~a & b));
  (a = turn(from[7] ^ r, 14)), (b = turn(from[19] ^ t, 10)), (c = turn(from[20] ^ k, 1)), (d = turn(from[32] ^ m, 22)), (e = turn(from[44] ^ o, 30));
  (to[11] = a ^ (~b & c)), (to[13] = b ^ (~c & d)), (to[15] = c ^ (~d & e)), (to[17] = d ^ (~e & a)), (to[19] = e ^ (~a & b));
  (a = turn(from[3] ^ n, 1)), (b = turn(from[14] ^ o, 3)), (c = turn(from[27] ^ r, 13)), (d = turn(from[38] ^ s, 4)), (e = turn(from[40] ^ k, 9));
  (to[20] = a ^ (~b & c)), (to[22] = b ^ (~c & d)), (to[24] = c ^ (~d & e)), (to[26] = d ^ (~e & a)), (to[28] = e ^ (~a & b));
  (a = from[2] ^ m), (b = turn(from[15] ^ p, 3)), (c = turn(from[26] ^ q, 12)), (d = turn(from[39] ^ t, 4)), (e = turn(from[41] ^ l, 9));
  (to[21] = a ^ (~b & c)), (to[23] = b ^ (~c & d)), (to[25] = c ^ (~d & e)), (to[27] = d ^ (~e & a)), (to[29] = e ^ (~a & b));
  (a = turn(from[9] ^ t, 14)), (b = turn(from[10] ^ k, 18)), (c = turn(from[22] ^ m, 5)), (d = turn(from[35] ^ p, 8)), (e = turn(from[46] ^ q, 28));
  (to[30] = a ^ (~b & c)), (to[32] = b ^ (~c & d)), (to[34] = c ^ (~d & e)), (to[36] = d ^ (~e & a)), (to[38] = e ^ (~a & b));
  (a = turn(from[8] ^ s, 13)), (b = turn(from[11] ^ l, 18)), (c = turn(from[23] ^ n, 5)), (d = turn(from[34] ^ o, 7)), (e = turn(from[47] ^ r, 28));
  (to[31] = a ^ (~b & c)), (to[33] = b ^ (~c & d)), (to[35] = c ^ (~d & e)), (to[37] = d ^ (~e & a)), (to[39] = e ^ (~a & b));
  (a = turn(from[4] ^ o, 31)), (b = turn(from[17] ^ r, 28)), (c = turn(from[29] ^ t, 20)), (d = turn(from[31] ^ l, 21)), (e = turn(from[42] ^ m, 1));
  (to[40] = a ^ (~b & c)), (to[42] = b ^ (~c & d)), (to[44] = c ^ (~d & e)), (to[46] = d ^ (~e & a)), (to[48] = e ^ (~a & b));
  (a = turn(from[5] ^ p, 31)), (b = turn(from[16] ^ q, 27)), (c = turn(from[28] ^ s, 19)), (d = turn(from[30] ^ k, 20)), (e = turn(from[43] ^ n, 1));
  (to[41] = a ^ (~b & c)), (to[43] = b ^ (~c & d)), (to[45] = c ^ (~d & e)), (to[47] = d ^ (~e & a)), (to[49] = e ^ (~a & b));
}

/** Leave the digest of a piece of bytes at the beginning of the state. */
function absorb(bytes, start, end) {
  state.fill(0);
  for (let from = start, size = RATE; size === RATE; from += RATE) {
    size = Math.min(end - from, RATE);
    copy(bytes, from, block.fill(0), 0, size);
    if (size < RATE) (block[size] = 1), (state[33] ^= 1 << 31);
    for (let at = 0; 4 * at <= size && at < RATE / 4; at += 2) {
      const low = parted(words[at]), high = parted(words[at + 1]);
      state[at] ^= (low & 0xffff) | (high << 16);
      state[at + 1] ^= (low >>> 16) | (high & ~0xffff);
    }
    for (let number = 0; number < 24; number += 2) round(state, spare, number), round(spare, state, number + 1);
  }
}

/** Exchange the bits under a mask with those so many places above. */
function exchanged(bits, mask, by) {
  const differing = (bits ^ (bits >>> by)) & mask;
  return bits ^ differing ^ (differing << by);
}

/** The even bits of a word in its lower half, the odd ones in its upper half. */
const parted = (bits) =>
  exchanged(exchanged(exchanged(exchanged(bits, 0x22222222, 1), 0x0c0c0c0c, 2), 0x00f000f0, 4), 0x0000ff00, 8);

/** Four bytes of the digest, the number `at`, as a number whose highest byte is the first. */
function digestWord(at) {
  const half = at % 2 ? 16 : 0, even = (state[at - (at % 2)] >>> half) & 0xffff, odd = state[at - (at % 2) + 1] >>> half;
  const bits = exchanged(exchanged(exchanged(exchanged(even | (odd << 16), 0xff00, 8), 0xf000f0, 4), 0x0c0c0c0c, 2), 0x22222222, 1);
  return ((bits << 24) | ((bits & 0xff00) << 8) | ((bits >>> 8) & 0xff00) | (bits >>> 24)) >>> 0;
}

/** The digest of a text, as hex digits. */
function digestOf(text) {
  absorb(utf8.encode(text), 0, text.length);
  return Array.from({ length: 8 }, (_, at) => digestWord(at).toString(16).padStart(8, "0")).join("");
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
