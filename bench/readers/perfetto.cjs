// Loads one trace into Perfetto's trace processor and prints what it found, as JSON.
//
//     node bench/readers/perfetto.cjs ENGINE_FOLDER TRACE [--list | --pids | --tree | --depths | --processes | --groups]
//
// Called by perfetto_counts.py. ENGINE_FOLDER holds the engine_bundle.js and .wasm that browsers
// run as a worker; a fresh script context plays the worker here, in which nothing of node is visible, so that the engine does
// not take itself for a node program. It is spoken to in TraceProcessorRpc messages (trace_processor.proto), of which the few
// fields needed are written and read by number below.
// It makes no other query than those at the end.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [engine, trace, list] = process.argv.slice(2);
// Methods of TraceProcessorRpc and the fields that carry arguments and answers.
const APPEND = { method: 1, argument: 101, answer: 201 };
const FINALIZE = { method: 2, answer: 212 };
const QUERY = { method: 3, argument: 103, answer: 203 };
const CHUNK_BYTES = 8 << 20;
const START_ATTEMPTS = 200;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

// The fields of a message: numbers as BigInt, the rest as bytes.
function* fields(message) {
  let at = 0;
  const integer = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = BigInt(message[at++]);
      value |= (byte & 127n) << shift;
      if (byte < 128n) return value;
    }
  };
  while (at < message.length) {
    const key = Number(integer());
    const length = [null, 8, undefined, null, null, 4][key & 7];
    if ((key & 7) === 0) yield [key >> 3, integer()];
    else {
      const size = (key & 7) === 2 ? Number(integer()) : length;
      yield [key >> 3, message.subarray(at, at + size)];
      at += size;
    }
  }
}
const inside = (message, field) => [...fields(message)].filter(([name]) => name === field).map(([, value]) => value);

// The worker as the engine sees it.
function startEngine() {
  const file = (url) => fs.readFileSync(path.join(engine, path.basename(url)));
  const buffer = (url) => new Uint8Array(file(url)).buffer;
  const self = { location: { href: 'file:///engine_bundle.js' } };
  class XMLHttpRequest {
    open(_method, url) { this.url = url; }
    send() { this.status = 200; this.response = buffer(this.url); }
  }
  const quiet = { log() {}, info() {}, debug() {}, warn() {}, error: console.error };
  const fetch = async (url) => ({ ok: true, arrayBuffer: async () => buffer(url) });
  // The engine relies on `catch (e instanceof TypeError)` of what WebAssembly throws: both from the same side, then.
  const shared = { TextDecoder, TextEncoder, URL, performance, setTimeout, crypto, WebAssembly, TypeError, Uint8Array };
  const scope = vm.createContext({ self, XMLHttpRequest, WorkerGlobalScope: class {}, console: quiet, fetch, ...shared });
  vm.runInContext(fs.readFileSync(path.join(engine, 'engine_bundle.js'), 'utf8'), scope);
  const port = { answers: [], postMessage(data) { this.answers.push(Buffer.from(data)); } };
  self.onmessage({ data: port });
  return port;
}

let sequence = 0;
// The answers to one request, each the content of the field `answer`; throws what the engine complains of.
function call(port, { method, argument, answer }, body) {
  port.answers = [];
  const parts = [number(1, sequence++), number(2, method)];
  if (body) parts.push(bytes(argument, body));
  port.onmessage({ data: new Uint8Array(bytes(1, Buffer.concat(parts))) });
  const messages = inside(Buffer.concat(port.answers), 1);
  for (const message of messages) for (const fatal of inside(message, 5)) throw new Error(String(fatal));
  return messages.flatMap((message) => inside(message, answer));
}

// All cells of a query's result in order, as strings; NULL is null. Only numbers and text are asked for.
function query(port, sql) {
  const cells = [];
  for (const result of call(port, QUERY, bytes(1, Buffer.from(sql)))) {
    for (const error of inside(result, 2)) if (error.length) throw new Error(String(error));
    for (const batch of inside(result, 3)) {
      const kinds = Buffer.concat(inside(batch, 1));
      const numbers = [...inside(batch, 2)].flatMap((packed) => unpack(packed));
      const texts = Buffer.concat(inside(batch, 5)).toString().split('\0');
      for (const kind of kinds) {
        if (kind === 2) cells.push(String(numbers.shift()));
        else if (kind === 4) cells.push(texts.shift());
        else if (kind === 1) cells.push(null);
        else if (kind !== 0) throw new Error(`a cell of kind ${kind}`);
      }
    }
  }
  return cells;
}

function unpack(packed) {
  // As a field each, so that the reader of integers above serves.
  const values = [];
  let start = 0;
  packed.forEach((byte, index) => {
    if (byte < 128) {
      values.push(inside(Buffer.concat([Buffer.from([8]), packed.subarray(start, index + 1)]), 1)[0]);
      start = index + 1;
    }
  });
  return values;
}

// The engine answers nothing until its WebAssembly is compiled.
async function ready(port) {
  for (let attempt = 0; attempt < START_ATTEMPTS; attempt++) {
    await new Promise((resume) => setTimeout(resume, 50));
    try {
      if (query(port, 'select 1')[0] === '1') return;
    } catch (error) {
      if (attempt === START_ATTEMPTS - 1) throw error;
    }
  }
  throw new Error('the trace processor does not start');
}

async function main() {
  const port = startEngine();
  await ready(port);
  const content = fs.readFileSync(trace);
  for (let at = 0; at < content.length; at += CHUNK_BYTES) {
    for (const result of call(port, APPEND, content.subarray(at, at + CHUNK_BYTES)))
      for (const error of inside(result, 2)) throw new Error(String(error));
  }
  for (const result of call(port, FINALIZE)) for (const error of inside(result, 2)) if (error.length) throw new Error(String(error));
  const rows = query(port, "select name, value from stats where severity in ('error', 'data_loss') and value > 0 order by name");
  const errors = {};
  for (let at = 0; at < rows.length; at += 2) errors[rows[at]] = (errors[rows[at]] ?? 0) + Number(rows[at + 1]);
  const [slices, flows] = ['slice', 'flow'].map((table) => Number(query(port, `select count(*) from ${table}`)[0]));
  const ns = Number(query(port, 'select coalesce(sum(dur), 0) from slice')[0]);
  const counters = Number(query(port, 'select count(*) from counter')[0]);
  const answer = { slices, flows, counters, ns, errors };
  // Tracks by their names: their numbers follow the order in which the engine meets them.
  if (list === '--list') {
    answer.starts = query(port, `select s.name, s.ts, s.dur, coalesce(p.name, pp.name, '') || '/' || coalesce(th.name, t.name, '') from slice s join track t on t.id = s.track_id
      left join thread_track tt on tt.id = t.id left join thread th using (utid) left join process p on p.upid = th.upid
      left join process_track pt on pt.id = t.id left join process pp on pp.upid = pt.upid`);
    answer.counts = query(port, "select c.ts, cast(c.value as int), coalesce(t.name, '') from counter c join track t on t.id = c.track_id");
    answer.machines = Number(query(port, 'select count(*) from machine')[0]);
  }
  // In the order in which Perfetto's page shows them: by the hint that a trace gives, and by name where it gives none.
  if (list === '--processes') {
    answer.processes = query(port, `select p.name, (select int_value from args where arg_set_id = p.arg_set_id and key = 'process_sort_index_hint'),
      (select count(*) from slice s join thread_track tt on tt.id = s.track_id join thread th using (utid) where th.upid = p.upid)
      from process p where p.name is not null order by 2, p.name`);
  }
  if (list === '--pids') {
    answer.slices_of = query(port, `select s.name, s.ts, s.dur, p.pid from slice s join thread_track tt on tt.id = s.track_id
      join thread th using (utid) join process p using (upid) order by s.ts`);
  }
  if (list === '--tree') answer.tree = query(port, 'select name, ts, dur, depth from slice');
  // Of slices on threads, by depth and name: how many, ns of their lengths, ns from the first to their beginnings.
  if (list === '--depths') {
    answer.first = query(port, 'select min(ts) from slice')[0];
    answer.depths = query(port, `select s.depth, s.name, count(*), sum(s.dur), cast(sum(s.ts - (select min(ts) from slice)) as text)
      from slice s join thread_track tt on tt.id = s.track_id group by 1, 2 order by 1, 2`);
    answer.others = query(port, `select t.name, count(*), sum(s.dur) from slice s join track t on t.id = s.track_id
      where s.track_id not in (select id from thread_track) group by 1 order by 1`);
  }
  // Everything but times, in groups; each ends with a count or a sum.
  if (list === '--groups') {
    const named = `coalesce(p.name, pp.name, '') || '/' || coalesce(th.name, t.name, '')`;
    const tracks = `join track t on t.id = s.track_id left join thread_track tt on tt.id = t.id left join thread th using (utid)
      left join process p on p.upid = th.upid left join process_track pt on pt.id = t.id left join process pp on pp.upid = pt.upid`;
    const grouped = (columns, from, ...sums) => {
      const names = columns.map((_, index) => `c${index}`);
      const width = columns.length + sums.length;
      const cells = query(port, `select ${[...columns.map((column, index) => `${column} as c${index}`), ...sums].join(', ')} from ${from}
        group by ${names.join(', ')} order by ${names.join(', ')}`);
      return Array.from({ length: cells.length / width }, (_, index) => cells.slice(index * width, (index + 1) * width));
    };
    answer.groups = {
      slices: grouped([named, 's.depth', 's.category', 's.name'], `slice s ${tracks}`, 'count(*)'),
      lengths: grouped([named, 's.name'], `slice s ${tracks} where s.dur > 0`, 'sum(s.dur)'),
      open: grouped(['s.name'], 'slice s where s.dur < 0', 'count(*)'),
      arguments: grouped(['s.name', 'a.flat_key', 'a.key', 'a.value_type', 'coalesce(a.string_value, cast(a.int_value as text), cast(a.real_value as text))'], 'slice s join args a using (arg_set_id)', 'count(*)'),
      flows: grouped(['o.name', 'i.name'], 'flow f join slice o on o.id = f.slice_out join slice i on i.id = f.slice_in', 'count(*)'),
      counters: grouped([`coalesce(t.name, '')`, 'cast(s.value as text)'], 'counter s join track t on t.id = s.track_id', 'count(*)'),
      switches: grouped(['s.ucpu', 't.tid', 's.end_state'], 'sched_slice s join thread t using (utid) where s.dur >= 0', 'count(*)'),
      kernel: grouped(['e.name', 't.tid'], 'ftrace_event e left join thread t using (utid)', 'count(*)'),
    };
  }
  // Into a pipe it is written by and by, and the process ends after this.
  await new Promise((resume) => process.stdout.write(JSON.stringify(answer) + '\n', resume));
}

main().then(() => process.exit(0), (error) => { console.error(String(error)); process.exit(1); });
