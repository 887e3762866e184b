// A client of MQTT.js that takes one step after another, and prints what each has come to: a JSON object to a line.
// usage: node client.mjs DIRECTORY_OF_MQTT_JS PORT STEPS
import { createRequire } from 'node:module';

const [directory, port, steps] = process.argv.slice(2);
const mqtt = createRequire(`${directory}/`)('mqtt');

// Buffers travel as {"hex": ...}, as does every payload.
const revive = (key, value) => (value && value.hex !== undefined ? Buffer.from(value.hex, 'hex') : value);
const show = (key, value) =>
  value && value.type === 'Buffer' ? { hex: Buffer.from(value.data).toString('hex') } : value;
const print = (result) => console.log(JSON.stringify(result ?? null, show));

let client;
const messages = [];
let waiting = null;

function received(topic, payload, packet) {
  const { qos, retain, dup, properties } = packet;
  messages.push({ topic, payload, qos, retain, dup, properties: { ...properties } });
  if (waiting) waiting();
}

const actions = {
  // Options of mqtt.connect; the CONNACK.
  connect: (options) =>
    new Promise((resolve, reject) => {
      client = mqtt.connect({ host: '127.0.0.1', port: Number(port), reconnectPeriod: 0, ...options });
      client.on('message', received);
      client.once('connect', ({ sessionPresent, reasonCode, returnCode, properties }) =>
        resolve({ sessionPresent, code: reasonCode ?? returnCode, properties: { ...properties } }));
      client.once('error', reject);
    }),
  subscribe: async ([filter, options]) => (await client.subscribeAsync(filter, options)).map(({ topic, qos }) => [topic, qos]),
  unsubscribe: async (filter) => void (await client.unsubscribeAsync(filter)),
  publish: async ([topic, payload, options]) => void (await client.publishAsync(topic, payload, options)),
  // So many messages, as they came.
  receive: async (count) => {
    while (messages.length < count) await new Promise((resolve) => (waiting = resolve));
    return { messages: messages.splice(0, count) };
  },
  // DISCONNECT, or with force the end of the connection alone.
  end: (force) => new Promise((resolve) => client.end(force, {}, resolve)),
};

for (const step of JSON.parse(steps, revive)) {
  const [[action, argument]] = Object.entries(step);
  try {
    print({ [action]: (await actions[action](argument)) ?? null });
  } catch (error) {
    print({ [action]: null, error: error.message, code: error.code });
  }
}
process.exit(0);
