// Takes the weights out of an ONNX file without reading them: walks protobuf's wire format and
// replaces each large payload by a reference to a file that is nowhere. The parts that stay are
// slices of the file, so a file of any size takes little memory. The rules are those of
// bricks/graph/wire.py: payloads up to 1 KiB stay, integers and truth values up to 1 MiB (they may
// decide shapes), and vectors up to 256 KiB (they may be scales of quantisation).
const [VARINT, I64, LEN, I32] = [0, 1, 2, 5];
const WINDOW = 1 << 16, MAX_DEPTH = 100;
const SMALL = 1 << 10, VECTOR = 1 << 18, STEERING = 1 << 20;
const STEERING_TYPES = new Set([6, 7, 9]); // INT32, INT64, BOOL
const PAYLOADS = new Set([4, 9, 10]); // float_data, raw_data, double_data
const CHILDREN = {
  model: { 7: "graph", 20: "training", 25: "function" },
  training: { 1: "graph", 2: "graph" },
  function: { 7: "node" },
  graph: { 1: "node", 5: "tensor" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 11: "graph" },
};
const text = new TextEncoder();

export class NotOnnx extends Error {}

class Source {
  constructor(file) { this.file = file; this.at = 0; this.bytes = new Uint8Array(0); }

  // Bytes from `at` on, at least `count` of them unless the file ends.
  async from(at, count) {
    const here = at - this.at;
    if (here < 0 || here + count > this.bytes.length) {
      const end = Math.min(this.file.size, at + Math.max(count, WINDOW));
      this.bytes = new Uint8Array(await this.file.slice(at, end).arrayBuffer());
      this.at = at;
      return this.bytes;
    }
    return here ? this.bytes.subarray(here) : this.bytes;
  }
}

// Numbers stay exact up to 2^53, beyond any size of a file; larger ones are only passed over.
function varint(bytes, at, end) {
  let value = 0, factor = 1;
  for (let i = at; i < at + 10; i++) {
    if (i >= end || i >= bytes.length) throw new NotOnnx("it is cut short");
    value += (bytes[i] & 0x7f) * factor;
    factor *= 128;
    if (bytes[i] < 0x80) return [value, i + 1];
  }
  throw new NotOnnx("its bytes are no protobuf message");
}

function encoded(value) {
  const out = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) out.push((value % 128) | 0x80);
  out.push(value);
  return new Uint8Array(out);
}

function lengthDelimited(number, size) {
  const tag = encoded(number * 8 + LEN), length = encoded(size);
  const head = new Uint8Array(tag.length + length.length);
  head.set(tag); head.set(length, tag.length);
  return head;
}

function entry(key, value) {
  const k = text.encode(key), v = text.encode(value);
  const inner = [lengthDelimited(1, k.length), k, lengthDelimited(2, v.length), v];
  return [lengthDelimited(13, inner.reduce((sum, part) => sum + part.length, 0)), ...inner];
}

const REFERENCE = [...entry("location", "weights"), new Uint8Array([14 * 8 + VARINT, 1])];

async function* fields(source, start, end) {
  let at = start;
  while (at < end) {
    const bytes = await source.from(at, Math.min(20, end - at));
    const room = Math.min(bytes.length, end - at);
    const [tag, after] = varint(bytes, 0, room);
    const number = Math.floor(tag / 8), type = tag % 8;
    if (number === 0) throw new NotOnnx("its bytes are no protobuf message");
    let body = at + after, stop, value = 0;
    if (type === VARINT) {
      const [read, next] = varint(bytes, after, room);
      value = read; stop = at + next;
    } else if (type === LEN) {
      const [length, next] = varint(bytes, after, room);
      body = at + next; stop = body + length;
    } else if (type === I64 || type === I32) {
      stop = body + (type === I64 ? 8 : 4);
    } else {
      throw new NotOnnx("its bytes are no protobuf message");
    }
    if (stop > end) throw new NotOnnx("it is cut short");
    yield { number, type, at, body, end: stop, value };
    at = stop;
  }
}

class Parts {
  constructor(file) { this.file = file; this.list = []; this.size = 0; }
  copy(start, end) { if (end > start) this.add(this.file.slice(start, end), end - start); }
  add(part, size) { this.list.push(part); this.size += size; }
  embed(number, parts) {
    const head = lengthDelimited(number, parts.size);
    this.add(head, head.length);
    for (const part of parts.list) this.list.push(part);
    this.size += parts.size;
  }
}

async function message(source, kind, start, end, depth) {
  if (depth > MAX_DEPTH) throw new NotOnnx("its messages are nested too deep");
  const parts = new Parts(source.file);
  let copied = start;
  for await (const field of fields(source, start, end)) {
    const child = CHILDREN[kind][field.number];
    if (!child || field.type !== LEN || field.end - field.body <= SMALL) continue;
    // Tensors in attributes are needed to make the operator, unless it is a constant.
    if (kind === "attribute" && child === "tensor" && !(await constant(source, start, end))) continue;
    const inner = child === "tensor"
      ? await tensor(source, field.body, field.end)
      : await message(source, child, field.body, field.end, depth + 1);
    parts.copy(copied, field.at);
    parts.embed(field.number, inner);
    copied = field.end;
  }
  parts.copy(copied, end);
  return parts;
}

// Whether an attribute is called "value", as the one of Constant; that of ConstantOfShape is small.
async function constant(source, start, end) {
  for await (const field of fields(source, start, end)) {
    if (field.number === 1 && field.type === LEN && field.end - field.body === 5) {
      const bytes = await source.from(field.body, 5);
      return String.fromCharCode(...bytes.subarray(0, 5)) === "value";
    }
  }
  return false;
}

// How many dimensions a field of them holds: one, or as many as numbers end in it.
async function dimensions(source, field) {
  if (field.type !== LEN) return 1;
  const count = Math.min(field.end - field.body, 1024);
  const bytes = (await source.from(field.body, count)).subarray(0, count);
  return bytes.filter((byte) => byte < 0x80).length;
}

async function tensor(source, start, end) {
  const parts = new Parts(source.file);
  let payload = null, payloads = 0, dtype = 0, rank = 0;
  for await (const field of fields(source, start, end)) {
    if (field.number === 1) rank += await dimensions(source, field);
    if (field.number === 2 && field.type === VARINT) dtype = field.value;
    if (PAYLOADS.has(field.number)) { payload = field; payloads += 1; }
  }
  const size = payload ? payload.end - payload.body : 0;
  const stays = payloads !== 1 || payload.type !== LEN || size <= SMALL
    || (STEERING_TYPES.has(dtype) && size <= STEERING) || (rank <= 1 && size <= VECTOR);
  if (stays) {
    parts.copy(start, end);
    return parts;
  }
  parts.copy(start, payload.at);
  parts.copy(payload.end, end);
  for (const piece of REFERENCE) parts.add(piece, piece.length);
  return parts;
}

// The file without its weights, as a Blob; throws NotOnnx for what is no protobuf message.
export async function strip(file) {
  if (file.size === 0) throw new NotOnnx("it is empty");
  const parts = await message(new Source(file), "model", 0, file.size, 0);
  return new Blob(parts.list);
}
