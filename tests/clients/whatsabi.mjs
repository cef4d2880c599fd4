// whatsabi's own lookups: reads [source, kind, hash] triples as JSON, prints the texts found for each.
import { loaders } from "@shazow/whatsabi";

const sources = {
  openchain: new loaders.OpenChainSignatureLookup(),
  fourbyte: new loaders.FourByteSignatureLookup(),
  default: loaders.defaultSignatureLookup,
};
const found = [];
for (const [source, kind, hash] of JSON.parse(process.argv[2])) {
  const lookup = sources[source];
  found.push(await (kind === "function" ? lookup.loadFunctions(hash) : lookup.loadEvents(hash)));
}
console.log(JSON.stringify(found));
