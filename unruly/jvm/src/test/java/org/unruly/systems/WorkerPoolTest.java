package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.unruly.apps.Trace;

/** The workers of a client, over connections that need no server. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WorkerPoolTest {
  private static final int TIMEOUT_S = 20;

  private final BlockingQueue<String> results = new LinkedBlockingQueue<>();
  private final AtomicInteger connections = new AtomicInteger();
  private final LineWriter lines = new LineWriter(new Results());

  /** Keeps each line; a flush follows each. */
  private final class Results extends OutputStream {
    @Override
    public void write(int one) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void write(byte[] bytes, int from, int length) {
      results.add(new String(bytes, from, length - 1, StandardCharsets.US_ASCII));
    }
  }

  /** Work of a connection before it echoes. */
  private interface Work {
    void run() throws Exception;
  }

  private WorkerPool pool(Work work) {
    EchoSystem.Client client =
        () -> {
          connections.incrementAndGet();
          return connection(work);
        };
    return new WorkerPool(0, new Callers(client, "test"), lines);
  }

  private static Connection connection(Work work) {
    return new Connection() {
      @Override
      void call(byte[] payload) throws Exception {
        if (payload.length > 0) {
          work.run();
        }
        keep(payload, 0, payload.length);
      }
    };
  }

  private String result() throws InterruptedException {
    return results.poll(TIMEOUT_S, TimeUnit.SECONDS);
  }

  @Test
  void above256OpenRequestsTheOthersWaitAndAreAnsweredLater() throws Exception {
    CountDownLatch entered = new CountDownLatch(WorkerPool.WORKERS_MAX);
    CountDownLatch go = new CountDownLatch(1);
    WorkerPool pool =
        pool(
            () -> {
              entered.countDown();
              go.await();
            });
    Set<String> open = new HashSet<>();
    for (int request = 0; request < 400; request++) {
      pool.submit(request, 8, Trace.NONE);
      open.add(Integer.toString(request));
    }
    assertTrue(entered.await(TIMEOUT_S, TimeUnit.SECONDS));
    assertEquals(256, pool.workers());
    assertEquals(256, connections.get());
    go.countDown();
    while (!open.isEmpty()) {
      String[] words = result().split(" ");
      assertEquals("done", words[0]);
      assertTrue(open.remove(words[1]), words[1]);
    }
    assertEquals(256, connections.get());
  }

  @Test
  void aClientWithOneOpenRequestHasOneWorker() throws Exception {
    WorkerPool pool = pool(() -> {});
    for (int request = 0; request < 5_000; request++) {
      pool.submit(request, 4, Trace.NONE);
      assertTrue(result().startsWith("done " + request + " "));
    }
    assertEquals(1, pool.workers());
    assertEquals(1, connections.get());
  }

  @Test
  void aWorkerConnectsOnceForEachRequestAfterAFailure() throws Exception {
    WorkerPool pool =
        pool(
            () -> {
              throw new java.net.SocketException("a line end \n and \u00e4");
            });
    for (int request = 1; request <= 3; request++) {
      pool.submit(request, 4, Trace.NONE);
      String wanted = " disconnected SocketException: a line end   and ?";
      String result = result();
      assertTrue(result.startsWith("failed " + request) && result.endsWith(wanted), result);
      assertEquals(request, connections.get());
    }
  }

  @Test
  void aTimeoutAndATooLargePayloadKeepTheConnection() throws Exception {
    WorkerPool pool =
        pool(
            () -> {
              throw Failure.timeout(5_000_000);
            });
    for (int request = 1; request <= 3; request++) {
      pool.submit(request, 4, Trace.NONE);
      assertTrue(result().endsWith(" unavailable no reply within 5 ms"));
      pool.submit(request, EchoSystem.MAX_BYTES + 1L, Trace.NONE);
      assertTrue(result().contains(" store a payload of 67108865 bytes is above the limit"));
    }
    assertEquals(1, connections.get());
  }

  @Test
  void aCallMakesNoGarbageOfItsOwn() throws Exception {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    long[] allocated = new long[2];
    AtomicInteger calls = new AtomicInteger();
    CountDownLatch all = new CountDownLatch(1);
    Work work =
        () -> {
          int call = calls.incrementAndGet();
          // the first calls load classes
          if (call == 1_000) {
            allocated[0] = threads.getCurrentThreadAllocatedBytes();
          } else if (call == 11_000) {
            allocated[1] = threads.getCurrentThreadAllocatedBytes();
            all.countDown();
          }
        };
    WorkerPool[] pool = new WorkerPool[1];
    OutputStream submitting =
        new OutputStream() {
          @Override
          public void write(int one) {
            throw new UnsupportedOperationException();
          }

          @Override
          public void write(byte[] bytes, int from, int length) {
            if (all.getCount() > 0) {
              pool[0].submit(1, 64, Trace.NONE);
            }
          }
        };
    Callers callers = new Callers(() -> connection(work), "test");
    pool[0] = new WorkerPool(0, callers, new LineWriter(submitting));
    pool[0].submit(1, 64, Trace.NONE);
    assertTrue(all.await(TIMEOUT_S, TimeUnit.SECONDS));
    assertTrue(allocated[1] - allocated[0] < 10_000, allocated[1] - allocated[0] + " bytes");
  }
}
