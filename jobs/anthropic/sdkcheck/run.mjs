// Reads a job from stdin, {base_url, key, cases: [{name, path, calls: [{op, params, retries}]}]}, performs the calls in
// order with the official TypeScript SDK and writes what the SDK said of each as one line of JSON.
import { readFileSync } from 'node:fs';
import Anthropic from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';

const job = JSON.parse(readFileSync(0, 'utf8'));

// messageView keeps the message as the SDK holds it and, from streams, what its event helpers delivered.
const messageView = (message, requestID, extra) => ({ message, request_id: requestID ?? null, ...extra });

async function create(client, params) {
  const { data, request_id } = await client.messages.create(params).withResponse();
  return messageView(data, request_id);
}

async function stream(client, params) {
  const seen = { text: '', thinking: '', inputs: [], events: {}, ended: false };
  const s = client.messages.stream(params);
  s.on('streamEvent', (e) => { seen.events[e.type] = (seen.events[e.type] ?? 0) + 1; });
  s.on('text', (piece) => { seen.text += piece; });
  s.on('thinking', (piece) => { seen.thinking += piece; });
  s.on('inputJson', (piece) => {
    const at = s.currentMessage.content.length - 1;
    seen.inputs[at] = (seen.inputs[at] ?? '') + piece;
  });
  s.on('end', () => { seen.ended = true; });
  try {
    const message = await s.finalMessage();
    return messageView(message, s.request_id, seen);
  } catch (err) {
    err.seen = { ...seen, request_id: s.request_id ?? null };
    throw err;
  }
}

// iterate reads the events of create({stream: true}), the way without helpers.
async function iterate(client, params) {
  const events = [];
  const { data, request_id } = await client.messages.create({ ...params, stream: true }).withResponse();
  try {
    for await (const e of data) events.push(e.type);
  } catch (err) {
    err.seen = { list: events };
    throw err;
  }
  return { request_id, list: events };
}

// The tool is a real function: it adds up what the model sent.
async function toolRunner(client, params, streaming) {
  const calls = [];
  const add = betaTool({
    name: 'add',
    description: 'Adds two numbers.',
    inputSchema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
    run: ({ a, b }) => { calls.push({ a, b }); return String(a + b); },
  });
  const runner = client.beta.messages.toolRunner({ ...params, tools: [add], stream: streaming });
  const messages = [];
  for await (const turn of runner) messages.push(streaming ? await turn.finalMessage() : turn);
  return { messages, calls };
}

async function models(client) {
  const ids = [];
  for await (const m of client.models.list({ limit: 5 })) ids.push(m.id);
  return { ids };
}

const ops = {
  create,
  stream,
  iterate,
  toolRunner: (client, params) => toolRunner(client, params, false),
  toolRunnerStream: (client, params) => toolRunner(client, params, true),
  countTokens: async (client, params) => ({ count: await client.messages.countTokens(params) }),
  models,
  model: async (client, params) => ({ model: await client.models.retrieve(params.id) }),
};

function errorView(err) {
  return {
    class: err.constructor.name,
    is_api_error: err instanceof Anthropic.APIError,
    status: err.status ?? 0,
    type: err.type ?? '',
    code: err.errorCode ?? '',
    message: err.apiMessage ?? err.message,
    request_id: err.requestID ?? '',
  };
}

for (const c of job.cases) {
  for (const call of c.calls) {
    const client = new Anthropic({
      apiKey: job.key, baseURL: job.base_url + (c.path ?? ''), maxRetries: call.retries ?? 0, timeout: 30_000, logLevel: 'off',
    });
    let line;
    try {
      line = { ok: await ops[call.op](client, call.params) };
    } catch (err) {
      line = { error: errorView(err), seen: err.seen };
    }
    process.stdout.write(JSON.stringify({ case: c.name, op: call.op, ...line }) + '\n');
  }
}
