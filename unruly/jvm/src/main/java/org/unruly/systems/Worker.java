package org.unruly.systems;

import java.util.concurrent.locks.LockSupport;
import org.unruly.apps.Trace;

/** A thread with a connection of its own, which has one request at a time. */
final class Worker implements Runnable {
  private final WorkerPool pool;
  private final Callers callers;
  private final LineWriter lines;
  private Connection connection;
  private byte[] payload;
  private long request;
  private long bytes;
  private Trace trace;
  /** True if the connection was used for the request. */
  private boolean isUsed;

  private long sentNs;
  private long receivedNs;
  private Thread thread;
  private long nextRequest;
  private long nextBytes;
  private Trace nextTrace;
  private volatile boolean assigned;

  Worker(WorkerPool pool, Callers callers, LineWriter lines) {
    this.pool = pool;
    this.callers = callers;
    this.lines = lines;
  }

  /** Keeps the thread that runs this worker. */
  void runBy(Thread own) {
    thread = own;
  }

  /** Gives it its next request; the pool does so only if it has none. */
  void assign(long number, long length, Trace of) {
    nextRequest = number;
    nextBytes = length;
    nextTrace = of;
    assigned = true;
    LockSupport.unpark(thread);
  }

  @Override
  public void run() {
    while (true) {
      while (!assigned) {
        LockSupport.park(this);
      }
      request = nextRequest;
      bytes = nextBytes;
      trace = nextTrace;
      assigned = false;
      Failure failure = null;
      try {
        call();
      } catch (Exception | OutOfMemoryError | LinkageError thrown) {
        failure = Failure.of(thrown);
        discard(failure);
      }
      FailOver failOver = connection == null ? null : connection.failOver();
      pool.release(this);
      if (failOver != null) {
        lines.failedOver(request, pool.client(), failOver);
      }
      if (failure == null) {
        lines.done(request, sentNs, receivedNs);
      } else {
        lines.failed(request, sentNs, receivedNs, failure);
      }
    }
  }

  private void call() throws Exception {
    sentNs = System.nanoTime();
    receivedNs = sentNs;
    boolean called = false;
    isUsed = false;
    try {
      callers.checkBytes(bytes);
      isUsed = true;
      if (connection == null) {
        connection = callers.open();
      }
      connection.prove();
      fill();
      connection.trace(trace);
      sentNs = System.nanoTime();
      connection.call(payload);
      receivedNs = System.nanoTime();
      called = true;
    } finally {
      if (!called) {
        receivedNs = System.nanoTime();
      }
    }
    connection.check(payload);
  }

  /** Puts the number of the request into the payload: the echo of another request differs. */
  private void fill() {
    if (payload == null || payload.length != bytes) {
      payload = new byte[(int) bytes];
      for (int index = Long.BYTES; index < payload.length; index++) {
        payload[index] = (byte) index;
      }
    }
    for (int index = 0; index < Math.min(Long.BYTES, payload.length); index++) {
      payload[index] = (byte) (request >>> Byte.SIZE * index);
    }
  }

  /** Drops the connection if it may be broken, and the payload, which may still be sent. */
  private void discard(Failure failure) {
    payload = null;
    boolean isTimeout = failure.kind() == Failure.Kind.UNAVAILABLE;
    boolean keeps = !isUsed || isTimeout && connection != null && connection.survivesTimeout();
    if (connection != null && !keeps) {
      connection.close();
      connection = null;
    }
  }
}
