package org.unruly.systems;

import java.util.Arrays;

/** A connection, proxy or stub that one thread calls; the thread closes it after a failure. */
abstract class Connection implements AutoCloseable {
  /** The array that has the last echo. It belongs to the connection until the next call. */
  private byte[] echo = {};

  private int start;
  private int length;

  /** Sends a payload and waits for its echo, which {@link #check} then compares. */
  abstract void call(byte[] payload) throws Exception;

  @Override
  public void close() {}

  /** Keeps the bytes of an echo. */
  final void keep(byte[] array, int from, int bytes) {
    echo = array;
    start = from;
    length = bytes;
  }

  /** Throws a failure unless the echo is the payload. */
  final void check(byte[] payload) throws Failure {
    if (length != payload.length) {
      String words = "an echo of " + length + " bytes came back for " + payload.length;
      throw new Failure(Failure.Kind.STORE, words);
    }
    int differs = Arrays.mismatch(echo, start, start + length, payload, 0, length);
    if (differs >= 0) {
      throw new Failure(Failure.Kind.STORE, "the echo differs at byte " + differs);
    }
  }
}
