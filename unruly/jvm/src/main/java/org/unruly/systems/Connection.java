package org.unruly.systems;

import java.util.Arrays;
import org.unruly.apps.Trace;

/** A connection, proxy or stub that one thread calls; the thread closes it after a failure. */
abstract class Connection implements AutoCloseable {
  private static final byte[] EMPTY = {};

  /** The array that has the last echo. It belongs to the connection until the next call. */
  private byte[] echo = {};

  private int start;
  private int length;
  private boolean isProved;

  /** Sends a payload and waits for its echo, which {@link #check} then compares. */
  abstract void call(byte[] payload) throws Exception;

  /**
   * Returns true if it can be used after a call that timed out: the late reply is not taken for
   * that of the next call. A slow server then has no new connections to accept.
   */
  boolean survivesTimeout() {
    return true;
  }

  /** Gives it the trace of the next call. */
  void trace(Trace trace) {}

  /** Returns the fail-over of the last call, or null if its first server answered it. */
  FailOver failOver() {
    return null;
  }

  @Override
  public void close() {}

  /** Proves a new connection by an empty echo. */
  final void prove() throws Exception {
    if (!isProved) {
      call(EMPTY);
      check(EMPTY);
      isProved = true;
    }
  }

  /** Keeps the bytes of an echo. */
  final void keep(byte[] array, int from, int bytes) {
    echo = array;
    start = from;
    length = bytes;
  }

  /** Returns the bytes of the last echo, which belong to the caller. */
  final byte[] reply() {
    return Arrays.copyOfRange(echo, start, start + length);
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
