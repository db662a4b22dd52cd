// Uses clients of Redis for Node.js, and libraries on top of them, as their manuals show:
// FOLDER NAME HOST PORT. The packages are in FOLDER.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, name, host, port] = process.argv.slice(2);
const load = createRequire(`${folder}/package.json`);
const address = { host, port: Number(port) };

async function ioredis() {
  const Redis = load("ioredis");
  const client = new Redis(address);
  assert.equal(await client.set("io:a", "1", "EX", 1000), "OK");
  const piped = await client.pipeline().incr("io:a").get("io:a").hset("io:h", { x: 1, y: 2 }).exec();
  assert.deepEqual(piped, [[null, 2], [null, "2"], [null, 2]]);
  assert.deepEqual(await client.hgetall("io:h"), { x: "1", y: "2" });
  await client.watch("io:a");
  const other = new Redis(address);
  await other.set("io:a", "changed");
  assert.equal(await client.multi().set("io:a", "mine").exec(), null);
  const done = await client.multi().set("io:a", "mine").get("io:a").exec();
  assert.deepEqual(done, [[null, "OK"], [null, "mine"]]);
  assert.equal(await client.rename("io:a", "io:b"), "OK");
  assert.deepEqual(await client.mget("io:a", "io:b"), [null, "mine"]);
  client.disconnect();
  other.disconnect();
}

async function nodeRedis() {
  const { createClient, WatchError } = load("redis");
  const client = await createClient({ socket: address }).connect();
  assert.equal(await client.set("node:a", "1", { expiration: { type: "EX", value: 1000 } }), "OK");
  assert.equal(await client.incrBy("node:a", 4), 5);
  const [set, got] = await client.multi().set("node:b", "v").get("node:b").exec();
  assert.deepEqual([set, got], ["OK", "v"]);
  await client.hSet("node:h", { x: "1", y: "2" });
  assert.deepEqual({ ...(await client.hGetAll("node:h")) }, { x: "1", y: "2" });
  await client.watch("node:b");
  const other = await client.duplicate().connect();
  await other.set("node:b", "changed");
  await assert.rejects(client.multi().set("node:b", "mine").exec(), WatchError);
  const keys = [];
  for await (const some of client.scanIterator({ MATCH: "node:*" })) keys.push(...some);
  assert.deepEqual(keys.sort(), ["node:a", "node:b", "node:h"]);
  client.destroy();
  other.destroy();
}

async function redlock() {
  const Redis = load("ioredis");
  const Redlock = load("redlock");
  const client = new Redis(address);
  const locks = new Redlock([client], { retryCount: 0 });
  const lock = await locks.lock("locks:account", 100_000);
  await assert.rejects(locks.lock("locks:account", 100_000));
  const longer = await lock.extend(200_000);
  assert.ok((await client.pttl("locks:account")) > 150_000);
  await longer.unlock();
  await (await locks.lock("locks:account", 100_000)).unlock();
  assert.equal(await client.exists("locks:account"), 0);
  client.disconnect();
}

async function rateLimiterFlexible() {
  const Redis = load("ioredis");
  const { RateLimiterRedis } = load("rate-limiter-flexible");
  const client = new Redis({ ...address, enableOfflineQueue: true });
  const limiter = new RateLimiterRedis({ storeClient: client, points: 3, duration: 100 });
  for (const left of [2, 1, 0]) {
    assert.equal((await limiter.consume("user")).remainingPoints, left);
  }
  await assert.rejects(limiter.consume("user"), (refused) => refused.msBeforeNext > 0);
  assert.equal((await limiter.get("user")).consumedPoints, 4);
  assert.equal(await limiter.delete("user"), true);
  assert.equal((await limiter.consume("user")).remainingPoints, 2);
  client.disconnect();
}

async function connectRedis() {
  const { createClient } = load("redis");
  const { RedisStore } = load("connect-redis");
  const client = await createClient({ socket: address }).connect();
  const store = new RedisStore({ client, prefix: "shop:" });
  const cookie = { originalMaxAge: 100_000 };
  await store.set("one", { cookie, cart: ["tea"] });
  assert.deepEqual((await store.get("one")).cart, ["tea"]);
  await store.touch("one", { cookie });
  assert.deepEqual(await store.ids(), ["one"]);
  assert.equal(await store.length(), 1);
  await store.destroy("one");
  assert.equal(await store.get("one"), null);
  client.destroy();
}

const all = {
  ioredis,
  "node-redis": nodeRedis,
  redlock,
  "rate-limiter-flexible": rateLimiterFlexible,
  "connect-redis": connectRedis,
};
await all[name]();
console.log(`${name}: as its manual says`);
