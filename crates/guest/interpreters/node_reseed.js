'use strict';
// Reseeds a live Node process, so that clones of one machine draw different random numbers.
//
// V8 cannot reseed Math.random, so this file replaces it by another generator. An addon (node_reseed.rs) reseeds
// OpenSSL's generator, which is inside Node or in a library; without the addon, the crypto functions read from the
// kernel. V8's hash seed and Math.random of contexts made with `vm.createContext` are not reseeded.

const crypto = require('crypto');
const fs = require('fs');
const path = require('path');

// The sizes of Node's caches of random values; see dropCaches.
const UUIDS_CACHED = 128;
const INTEGERS_CACHED = 1024;

const openssl = loadAddon();
const state = new Uint32Array(4);

/** Mixes `entropy` (hexadecimal) and randomness from the kernel into every generator. */
function reseed(entropy) {
  const seed = crypto.createHash('sha256');
  seed.update(Buffer.from(entropy, 'hex')).update(kernelRandom(32)).update(Buffer.from(state.buffer));
  seed.update(`${process.pid} ${process.hrtime.bigint()}`);
  const digest = seed.digest();
  for (let word = 0; word < 4; word++) state[word] = digest.readUInt32LE(4 * word);
  openssl?.reseed(Buffer.concat([digest, kernelRandom(32)]));
}

/** Uses up the caches that Node fills in advance for UUIDs and integers, because they predate the reseed. */
function dropCaches() {
  for (let drawn = 0; drawn < UUIDS_CACHED; drawn++) crypto.randomUUID();
  for (let drawn = 0; drawn < INTEGERS_CACHED; drawn++) crypto.randomInt(2);
}

function kernelRandom(length) {
  const bytes = Buffer.allocUnsafe(length);
  const fd = fs.openSync('/dev/urandom', 'r');
  let filled = 0;
  while (filled < length) filled += fs.readSync(fd, bytes, filled, length - filled);
  fs.closeSync(fd);
  return bytes;
}

/** xoshiro128**, two steps for the 53 bits of a double. */
function random() {
  const high = nextWord() >>> 5;
  return (high * 0x4000000 + (nextWord() >>> 6)) / 0x20000000000000;
}

function nextWord() {
  const middle = Math.imul(state[1], 5);
  const result = Math.imul((middle << 7) | (middle >>> 25), 9);
  const shifted = state[1] << 9;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = (state[3] << 11) | (state[3] >>> 21);
  return result;
}

function loadAddon() {
  try {
    return require(path.join(__dirname, 'node_reseed.node'));
  } catch {
    return null;
  }
}

/** Replaces the crypto functions by ones that read from the kernel, where OpenSSL cannot be reseeded. */
function readFromKernel() {
  crypto.randomBytes = (size, callback) => answer(callback, () => kernelRandom(size));
  crypto.randomFillSync = fill;
  crypto.randomFill = (target, ...rest) => answer(rest.pop(), () => fill(target, ...rest));
  crypto.randomInt = (low, high, callback) =>
    typeof high === 'number' ? answer(callback, () => integer(low, high)) : answer(high, () => integer(0, low));
  crypto.randomUUID = uuid;
  const web = Object.getPrototypeOf(crypto.webcrypto);
  web.getRandomValues = (target) => fill(target);
  web.randomUUID = uuid;
  require('module').syncBuiltinESMExports();
}

function answer(callback, make) {
  const value = make();
  if (typeof callback !== 'function') return value;
  process.nextTick(callback, null, value);
}

function fill(target, offset = 0, size = undefined) {
  const bytes = Buffer.from(target.buffer ?? target, target.byteOffset ?? 0, target.byteLength);
  const width = target.BYTES_PER_ELEMENT ?? 1;
  const begin = offset * width;
  const length = size === undefined ? bytes.length - begin : size * width;
  if (begin < 0 || length < 0 || begin + length > bytes.length) {
    throw new RangeError('"offset" or "size" is out of range');
  }
  kernelRandom(length).copy(bytes, begin);
  return target;
}

function integer(low, high) {
  const range = high - low;
  if (!Number.isSafeInteger(low) || !Number.isSafeInteger(high) || range <= 0 || range >= 2 ** 48) {
    throw new RangeError('"max" must be greater than "min", by less than 2 ** 48');
  }
  // Values above the last whole multiple of the range would favour its lower end, so they are drawn again.
  const limit = 2 ** 48 - (2 ** 48 % range);
  let drawn;
  do drawn = kernelRandom(6).readUIntBE(0, 6); while (drawn >= limit);
  return low + (drawn % range);
}

function uuid() {
  const bytes = kernelRandom(16);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, '$1-$2-$3-$4-$5');
}

if (!openssl) readFromKernel();
Object.defineProperty(Math, 'random', { value: random, writable: true, configurable: true });
reseed('');

module.exports = { reseed, dropCaches, opensslReseeds: openssl !== null };
