// Opens each pack of standard input, a JSON list of paths and hashes, and writes what it has or why it is refused.
import { readFileSync } from "node:fs";
import { BadPack, Pack } from "../../clients/js/index.js";

async function read({ path, key, hashes }) {
  try {
    const opened = await Pack.open(readFileSync(path), { key });
    const pack = new Pack(structuredClone({ ...opened })); // as IndexedDB keeps it
    return {
      size: pack.size,
      texts: hashes.map((hash) => pack.lookup(hash)),
      declarations: hashes.map((hash) => pack.declarations(hash)),
      abi: hashes.map((hash) => pack.abi(hash)),
    };
  } catch (error) {
    if (!(error instanceof BadPack) && !(error instanceof TypeError)) throw error;
    return { refused: error.name, message: error.message };
  }
}

const found = [];
for (const asked of JSON.parse(readFileSync(0, "utf8"))) found.push(await read(asked));
process.stdout.write(JSON.stringify(found));
