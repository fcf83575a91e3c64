// What rhea does with a broker, each feature on a connection, a queue and a topic of its own. Argument: its URL.
"use strict";

const assert = require("node:assert/strict");
const rhea = require("rhea");

const WAIT_MS = 10000;
const NOTHING_MS = 100;
require("node:events").defaultMaxListeners = 100;
const { hostname, port } = new URL(process.argv[2]);

/** The first of the events, or an error after a while. */
function event(emitter, name, ...errors) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${name} came`)), WAIT_MS);
    emitter.once(name, (context) => {
      clearTimeout(timer);
      resolve(context);
    });
    for (const each of errors) {
      emitter.once(each, (context) => {
        clearTimeout(timer);
        const { error } = context.receiver || context.sender || context.connection;
        reject(new Error(error ? `${error.condition}: ${error.description}` : each));
      });
    }
  });
}

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A link to receive on, whose deliveries wait until they are asked for. */
class Receiver {
  constructor(link) {
    this.link = link;
    this.arrived = [];
    this.asking = [];
    link.on("message", (context) => {
      const asks = this.asking.shift();
      if (asks) asks(context);
      else this.arrived.push(context);
    });
  }

  next(ms = WAIT_MS) {
    if (this.arrived.length) return Promise.resolve(this.arrived.shift());
    return new Promise((resolve) => {
      const asks = (context) => {
        clearTimeout(timer);
        resolve(context);
      };
      const timer = setTimeout(() => {
        this.asking = this.asking.filter((each) => each !== asks);
        resolve(null);
      }, ms);
      this.asking.push(asks);
    });
  }

  /** The next message, which is accepted. */
  async take() {
    const found = await this.next();
    assert.ok(found, "no message came");
    found.delivery.accept();
    return found.message;
  }

  /** The bodies of the next messages, and that no further one comes. */
  async receives(...bodies) {
    for (const each of bodies) assert.deepEqual((await this.take()).body, each);
    assert.equal(await this.next(NOTHING_MS), null, "one message too many came");
  }

  async close() {
    this.link.close();
    await event(this.link, "receiver_close");
  }
}

class Scene {
  constructor(name) {
    this.queue = `rhea-${name.replace(/[^a-z0-9]+/g, "-")}`;
    this.topic = `topic://${this.queue}-news`;
    const container = rhea.create_container({ id: this.queue });
    // with a user name alone rhea speaks SASL, and says ANONYMOUS
    this.connection = container.connect({ host: hostname, port, username: "anonymous", reconnect: false });
  }

  async open() {
    await event(this.connection, "connection_open", "disconnected", "connection_close");
    return this;
  }

  async send(address, ...messages) {
    const link = this.connection.open_sender(address === null ? { target: {} } : address);
    await event(link, "sendable", "sender_error");
    for (const each of messages) {
      link.send(each);
      await event(link, "accepted", "rejected", "released", "sender_error");
    }
    link.close();
  }

  async receiver(source = this.queue, options = {}) {
    const link = this.connection.open_receiver({ source, autoaccept: false, credit_window: 10, ...options });
    const receiver = new Receiver(link);
    const refused = new Promise((_, reject) => {
      link.once("receiver_error", () => reject(new Error(`${link.error.condition}: ${link.error.description}`)));
    });
    refused.catch(() => {});
    await event(link, "receiver_open", "receiver_close");
    // a refusal is an attach without a source, and a detach with the reason behind it
    if (!link.source || !link.source.address) await refused;
    return receiver;
  }

  /** Sends a message, and returns it as it comes back. */
  async through(message) {
    await this.send(this.queue, message);
    return (await this.receiver()).take();
  }

  async close() {
    const closed = event(this.connection, "connection_close", "disconnected");
    this.connection.close();
    await closed;
  }
}

const features = {
  async "text message"(s) {
    assert.equal((await s.through({ body: "größe" })).body, "größe");
  },
  async "bytes message"(s) {
    const got = await s.through({ body: rhea.message.data_section(Buffer.from([1, 2, 3])) });
    assert.deepEqual(got.body.content, Buffer.from([1, 2, 3]));
  },
  async "map message"(s) {
    assert.deepEqual((await s.through({ body: { one: 1, two: "2" } })).body, { one: 1, two: "2" });
  },
  async "list message"(s) {
    assert.deepEqual((await s.through({ body: ["one", 2, 0.5] })).body, ["one", 2, 0.5]);
  },
  async properties(s) {
    const sent = { boolean: true, int: 3, double: 0.25, string: "größe" };
    assert.deepEqual((await s.through({ body: "body", application_properties: sent })).application_properties, sent);
  },
  async headers(s) {
    const sent = {
      message_id: "id",
      correlation_id: "correlation",
      subject: "type",
      reply_to: "replies",
      to: s.queue,
      content_type: "text/plain",
      group_id: "group",
      group_sequence: 7,
      durable: true,
    };
    const got = await s.through({ body: "body", ...sent });
    for (const [name, value] of Object.entries(sent)) assert.equal(got[name], value, name);
    assert.equal(got.first_acquirer, true);
    assert.equal(got.delivery_count || 0, 0);
  },
  async priority(s) {
    for (const priority of [4, 9, 0]) await s.send(s.queue, { body: priority, priority });
    await (await s.receiver()).receives(9, 4, 0);
  },
  async "time to live"(s) {
    await s.send(s.queue, { body: "short", ttl: 1 });
    await later(20);
    await s.send(s.queue, { body: "long", ttl: 60000 });
    await (await s.receiver()).receives("long");
  },
  async "10 MiB"(s) {
    const large = Buffer.alloc(10 * 1024 * 1024, 7);
    const got = await s.through({ body: rhea.message.data_section(large) });
    assert.ok(large.equals(got.body.content), "the bytes are the same");
  },
  async "anonymous producer"(s) {
    const subscriber = await s.receiver(s.topic);
    await s.send(null, { body: "to a queue", to: s.queue }, { body: "to a topic", to: s.topic });
    await (await s.receiver()).receives("to a queue");
    await subscriber.receives("to a topic");
  },
  async "delivery delay"(s) {
    const sent = Date.now();
    await s.send(s.queue, { body: "later", message_annotations: { "x-opt-delivery-delay": 300 } });
    await (await s.receiver()).take();
    assert.ok(Date.now() - sent >= 300, "it came 300 ms later");
  },
  async "settled on sending"(s) {
    const link = s.connection.open_sender({ target: s.queue, snd_settle_mode: 1 });
    await event(link, "sendable", "sender_error");
    link.send({ body: "sent" });
    await (await s.receiver()).receives("sent");
  },
  async "settled on receiving"(s) {
    await s.send(s.queue, { body: "one" });
    const receiver = await s.receiver(s.queue, { snd_settle_mode: 1 });
    assert.equal((await receiver.next()).message.body, "one");
    await receiver.close();
    await (await s.receiver()).receives();
  },
  async "receive without waiting"(s) {
    const link = s.connection.open_receiver({ source: s.queue, credit_window: 0 });
    await event(link, "receiver_open", "receiver_error");
    link.drain_credit();
    link.add_credit(10);
    await event(link, "receiver_drained", "receiver_error");
  },
  async "prefetch 1000"(s) {
    const bodies = Array.from({ length: 20 }, (_, number) => `message ${number}`);
    await s.send(s.queue, ...bodies.map((body) => ({ body })));
    await (await s.receiver(s.queue, { credit_window: 1000 })).receives(...bodies);
  },
  async "individual acknowledge"(s) {
    await s.send(s.queue, { body: "one" }, { body: "two" });
    const receiver = await s.receiver();
    await receiver.next();
    (await receiver.next()).delivery.accept();
    await receiver.close();
    await (await s.receiver()).receives("one");
  },
  async release(s) {
    await s.send(s.queue, { body: "answered" });
    const receiver = await s.receiver();
    (await receiver.next()).delivery.release({ delivery_failed: false });
    assert.equal((await receiver.take()).delivery_count || 0, 0);
  },
  async modify(s) {
    await s.send(s.queue, { body: "answered" });
    const receiver = await s.receiver();
    (await receiver.next()).delivery.modified({ delivery_failed: true, undeliverable_here: false });
    assert.equal((await receiver.take()).delivery_count, 1);
  },
  async reject(s) {
    await s.send(s.queue, { body: "answered" });
    const receiver = await s.receiver();
    (await receiver.next()).delivery.reject({ condition: "amqp:decode-error", description: "it cannot be read" });
    await receiver.receives();
  },
  async topic(s) {
    const [one, other] = [await s.receiver(s.topic), await s.receiver(s.topic)];
    await s.send(s.topic, { body: "news" });
    await one.receives("news");
    await other.receives("news");
  },
  async "durable subscription"(s) {
    const source = { address: s.topic, durable: 2, expiry_policy: "never" };
    const away = await s.receiver(source, { name: "subscription" });
    away.link.detach();
    await event(away.link, "receiver_close");
    await s.send(s.topic, { body: "while away" });
    await (await s.receiver(source, { name: "subscription" })).receives("while away");
  },
  async selector(s) {
    for (const region of ["eu", "us"]) await s.send(s.queue, { body: region, application_properties: { region } });
    await (await s.receiver({ address: s.queue, filter: rhea.filter.selector("region = 'us'") })).receives("us");
    await (await s.receiver()).receives("eu");
  },
  async browser(s) {
    await s.send(s.queue, { body: "one" }, { body: "two" });
    await (await s.receiver({ address: s.queue, distribution_mode: "copy" })).receives("one", "two");
    await (await s.receiver()).receives("one", "two");
  },
  async "temporary queue"(s) {
    const receiver = await s.receiver({ dynamic: true });
    await s.send(receiver.link.source.address, { body: "here" });
    await receiver.receives("here");
  },
  async "request and reply"(s) {
    const replies = await s.receiver({ dynamic: true });
    const got = await s.through({ body: "request", reply_to: replies.link.source.address });
    await s.send(null, { body: "reply", to: got.reply_to });
    await replies.receives("reply");
  },
};

async function main() {
  for (const [name, run] of Object.entries(features)) {
    let result = "ok";
    const scene = new Scene(name);
    try {
      await run(await scene.open());
    } catch (error) {
      result = error.message.replace(/\s+/g, " ");
    }
    await scene.close();
    console.log(`${name}\t${result}`);
  }
  process.exit(0);
}

main();
