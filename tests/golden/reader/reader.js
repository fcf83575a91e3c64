// Reads frames of the WAL as docs/FORMAT.md, "Frames", says, with nothing but Node: no code of the product, no library.
//
// A line of standard input is a journal's uuid, a shard, the number of shards, and a record's value; uuid and value are
// hexadecimal. The answer is a line of JSON: the frame with its operations, as protobuf writes messages in JSON, or
// {"refused": reason}.
'use strict'

class NotAFrame extends Error {}

const refuse = reason => { throw new NotAFrame(reason) }

// ---- protobuf: the fields of a message ------------------------------------------------------------------------------

class Input {
  constructor (bytes) {
    this.bytes = bytes
    this.at = 0
  }

  take (size) {
    if (size > this.bytes.length - this.at) refuse('not a frame: it ends too early')
    this.at += size
    return this.bytes.subarray(this.at - size, this.at)
  }

  varint (bytesMax = 10) {
    let value = 0n
    for (let index = 0; index < bytesMax; index++) {
      const byte = this.take(1)[0]
      value |= BigInt(byte & 0x7F) << BigInt(7 * index)
      if (byte < 0x80) return BigInt.asUintN(64, value)
    }
    return refuse('not a frame: a number without an end')
  }

  size () {
    const size = this.varint(5)
    return size < 2n ** 31n ? Number(size) : refuse(`not a frame: a field of ${size} bytes`)
  }

  tag () {
    const tag = this.varint(5)
    const number = Number(tag >> 3n)
    if (number === 0 || tag >= 2n ** 32n) refuse(`not a frame: tag ${tag}`)
    return [number, Number(tag & 7n)]
  }

  value (number, wireType, depth) {
    switch (wireType) {
      case VARINT: return this.varint()
      case EIGHT_BYTES: return this.take(8)
      case SIZED: return this.take(this.size())
      case GROUP: return this.skipGroup(number, depth + 1)
      case FOUR_BYTES: return this.take(4)
    }
    return refuse(`not a frame: wire type ${wireType}`)
  }

  skipGroup (number, depth) {
    if (depth > GROUPS_MAX) refuse('not a frame: groups in groups')
    for (;;) {
      const [inner, wireType] = this.tag()
      if (wireType !== END_OF_GROUP) this.value(inner, wireType, depth)
      else return inner === number ? null : refuse('not a frame: a group with the end of another one')
    }
  }
}

const [VARINT, EIGHT_BYTES, SIZED, GROUP, END_OF_GROUP, FOUR_BYTES] = [0, 1, 2, 3, 4, 5]
const GROUPS_MAX = 100

const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const int64 = value => BigInt.asIntN(64, value)
const string = value => {
  try { return text.decode(value) } catch { return refuse('not a frame: a name that is not UTF-8') }
}
const FIELDS = {
  1: ['magic', FOUR_BYTES, value => value.readUInt32LE()],
  2: ['format', VARINT, value => BigInt.asUintN(32, value)],
  3: ['journal', SIZED],
  4: ['epoch', VARINT, int64],
  5: ['node', SIZED, string],
  6: ['group', VARINT, int64],
  7: ['number', VARINT, int64],
  8: ['previous', VARINT, int64],
  9: ['last', VARINT, value => value !== 0n],
  10: ['issued', VARINT, int64],
  11: ['count', VARINT, value => Number(BigInt.asUintN(32, value))],
  12: ['former', SIZED],
  13: ['types', SIZED],
  14: ['ids', SIZED],
  15: ['kinds', SIZED],
  16: ['lengths', SIZED],
  17: ['subjects', SIZED],
  18: ['replaceable', SIZED],
  19: ['txs', SIZED],
  20: ['covers', SIZED],
  21: ['shards', SIZED],
  22: ['data', SIZED]
}

function fieldsOf (value) {
  const fields = { magic: 0, format: 0n, epoch: 0n, node: '', group: 0n, number: 0n, previous: 0n, last: false, issued: 0n, count: 0 }
  for (const [name, wireType] of Object.values(FIELDS)) if (wireType === SIZED && name !== 'node') fields[name] = Buffer.alloc(0)
  const input = new Input(value)
  while (input.at < value.length) {
    const [number, wireType] = input.tag()
    const content = input.value(number, wireType, 0)
    const [name, expected, decode = same => same] = FIELDS[number] ?? []
    if (wireType === expected) fields[name] = decode(content)
  }
  return fields
}

// ---- checks, in the order of FORMAT.md ------------------------------------------------------------------------------

const hex = number => `0x${number.toString(16)}`
const COLUMNS = [ // name, bytes of a value, how it is read, whether it may be absent
  ['types', 1, 'readUInt8', false],
  ['ids', 8, 'readBigInt64LE', false],
  ['kinds', 1, 'readUInt8', false],
  ['lengths', 4, 'readUInt32LE', false],
  ['subjects', 8, 'readBigInt64LE', true],
  ['replaceable', 1, 'readUInt8', true],
  ['txs', 8, 'readBigInt64LE', true],
  ['covers', 4, 'readUInt32LE', true],
  ['shards', 4, 'readUInt32LE', true]
]

function checkHeader (frame, journal) {
  if (frame.magic !== 0x314C4A4B) refuse(`not a frame: magic ${hex(frame.magic)} instead of 0x314c4a4b`)
  if (frame.format !== 1n) refuse(`frame format ${frame.format}: this release reads format 1; a newer release may read it`)
  if (frame.former.length) refuse('frame that was written before 0.1.0: make the journal anew')
  const uuid = frame.journal.toString('hex')
  if (uuid !== journal) refuse(`frame of another journal: uuid ${uuid} instead of ${journal}`)
  const { epoch, group, number, previous, issued } = frame
  if (epoch < 1n || group < 1n || number < 1n || previous !== number - 1n) {
    refuse(`frame with impossible numbers: epoch ${epoch}, group ${group}, number ${number} after ${previous}`)
  }
  if (issued < 0n) refuse(`frame with a negative issued sequence: ${issued}`)
}

function operationsOf (frame) {
  const count = frame.count
  for (const [name, width, , optional] of COLUMNS) {
    const size = frame[name].length
    if (size !== count * width && !(optional && size === 0)) refuse(`frame of ${count} operations has a column \`${name}\` of ${size} bytes`)
  }
  const operations = Array.from({ length: count }, () => ({}))
  for (const [name, width, read] of COLUMNS) {
    const column = frame[name]
    operations.forEach((operation, index) => { operation[name] = column.length ? column[read](index * width) : width === 8 ? 0n : 0 })
  }
  const total = operations.reduce((sum, operation) => sum + operation.lengths, 0)
  if (total !== frame.data.length) refuse(`frame says ${total} bytes of data and has ${frame.data.length}`)
  const wrong = frame.replaceable.find(value => value > 1)
  if (wrong) refuse(`frame has ${wrong} in its column \`replaceable\``)
  let at = 0
  for (const operation of operations) operation.data = frame.data.subarray(at, at += operation.lengths)
  return operations
}

const NAMES = ['', 'ADD', 'UPDATE', 'DELETE', 'PREPARE', 'COMMIT', 'ROLLBACK', 'MARKER']

function faultOf ({ types, ids, txs, subjects, data }, count, shard, shards) {
  switch (NAMES[types]) {
    case 'ADD': case 'UPDATE': case 'DELETE': {
      if (ids < 1n) return `id ${ids} is not positive`
      if (txs < 0n) return `tx ${txs} is negative`
      if (subjects < 0n) return `subject ${subjects} is negative`
      const home = Number(ids % 1024n) % shards
      return home !== shard && `id ${ids} belongs to shard ${home} and stands in shard ${shard}`
    }
    case 'PREPARE': case 'COMMIT': case 'ROLLBACK': return txs < 1n && `tx ${txs} is not positive`
    case 'MARKER':
      if (count !== 1) return `an epoch marker in a frame of ${count} operations`
      return data.length !== 16 && 'an epoch marker without a nonce of 16 bytes'
  }
  return `unknown type ${types}`
}

function readFrame (value, journal, shard, shards) {
  if (value.length === 0) refuse('an empty record is not a frame')
  const frame = fieldsOf(value)
  checkHeader(frame, journal)
  const operations = operationsOf(frame)
  operations.forEach((operation, index) => {
    const fault = faultOf(operation, operations.length, shard, shards)
    if (fault) refuse(`operation ${index}: ${fault}`)
  })
  const { epoch, node, group, number, previous, last, issued } = frame
  return { epoch, node, group, number, previous, last, issued, operations: operations.map(jsonOf) }
}

// ---- output ---------------------------------------------------------------------------------------------------------

const jsonOf = ({ types, ids, kinds, data, replaceable, subjects, txs, covers, shards }) => ({
  type: NAMES[types], id: ids, kind: kinds, data: data.toString('base64'), replaceable: replaceable === 1, subject: subjects, tx: txs, covers, shards
})

function answerTo (line) {
  const [journal, shard, shards, value] = line.split(' ')
  try {
    return readFrame(Buffer.from(value, 'hex'), journal, Number(shard), Number(shards))
  } catch (error) {
    if (error instanceof NotAFrame) return { refused: error.message }
    throw error
  }
}

require('readline').createInterface({ input: process.stdin }).on('line', line => {
  console.log(JSON.stringify(answerTo(line), (_, value) => typeof value === 'bigint' ? value.toString() : value))
})
