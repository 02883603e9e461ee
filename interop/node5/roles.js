// The official Node client of RocketMQ 5 in one role, with its defaults; prints a JSON line for each event.
//
//   NODE_PATH=…/node_modules node roles.js ENDPOINTS ROLE TOPIC [ARGUMENTS]
'use strict';

const { once } = require('node:events');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');

// The package does not export its TransactionResolution.
const COMMIT = 1;

// Keys from the environment: the command line is for everybody to see.
const { PEER_ACCESS_KEY: accessKey, PEER_SECRET_KEY: accessSecret } = process.env;
const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;

const logger = { debug() {}, info() {}, warn() {}, error() {} };

function say(what, values = {}) {
  process.stdout.write(`${JSON.stringify({ what, ...values })}\n`);
}

function show(message) {
  say('received', {
    body: message.body.toString(),
    tag: message.tag ?? null,
    group: message.messageGroup ?? null,
    attempt: message.deliveryAttempt,
    properties: Object.fromEntries(message.properties),
  });
}

async function input() {
  process.stdin.resume();
  await once(process.stdin, 'end');
}

async function produce(endpoints, topic, kind, count = '1') {
  const isTransaction = ['commit', 'rollback', 'check'].includes(kind);
  const checker = {
    async check(half) {
      say('checked', { body: half.body.toString() });
      return COMMIT;
    },
  };
  const producer = new Producer({
    endpoints, namespace: '', topic, logger, sessionCredentials, checker: isTransaction ? checker : undefined,
  });
  await producer.startup();
  for (let number = 0; number < Number(count); number++) {
    const body = `${kind}-${number}`;
    const message = {
      topic, body: Buffer.from(body), keys: [ `key-${body}` ], properties: new Map([[ 'sent-by', 'node5' ]]),
    };
    let receipt;
    if (isTransaction) {
      const transaction = producer.beginTransaction();
      receipt = await producer.send(message, transaction);
      if (kind !== 'check') await transaction[kind]();
    } else {
      if (kind === 'fifo') message.messageGroup = `group-${number % 2}`;
      else if (kind === 'delay') message.deliveryTimestamp = new Date(Date.now() + 2000);
      else message.tag = number % 2 === 0 ? 'even' : 'odd';
      receipt = await producer.send(message);
    }
    say('sent', { id: receipt.messageId, body });
  }
  say('ready');
  await input();
  await producer.shutdown();
}

async function simple(endpoints, topic, consumerGroup, count, how = 'ack') {
  const subscriptions = new Map([[ topic, '*' ]]);
  const consumer = new SimpleConsumer({
    endpoints, namespace: '', consumerGroup, subscriptions, logger, sessionCredentials, awaitDuration: 5000,
  });
  await consumer.startup();
  say('ready');
  for (let left = Number(count); left > 0;) {
    for (const message of await consumer.receive(16, 15000)) {
      show(message);
      if (how === 'nack' && message.deliveryAttempt === 1) {
        await consumer.changeInvisibleDuration(message, 1000);
        continue;
      }
      await consumer.ack(message);
      left--;
    }
  }
  say('done');
  await input();
  await consumer.shutdown();
}

async function push(endpoints, topic, consumerGroup, expression = '*', how = 'ok') {
  const messageListener = {
    async consume(message) {
      show(message);
      return how === 'fail once' && message.deliveryAttempt === 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([[ topic, new FilterExpression(expression) ]]);
  const consumer = new PushConsumer({
    endpoints, namespace: '', consumerGroup, subscriptions, messageListener, logger, sessionCredentials,
  });
  await consumer.startup();
  say('ready');
  await input();
  await consumer.shutdown();
}

const [ endpoints, role, ...words ] = process.argv.slice(2);
({ produce, simple, push })[role](endpoints, ...words).then(() => process.exit(0), problem => {
  say('failed', { error: String(problem) });
  process.exit(1);
});
