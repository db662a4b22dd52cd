package org.unruly.apps;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Exports the spans of one service to the run that measures it: OTLP over HTTP, as JSON.
 *
 * <p>A thread of its own sends them, several times a second. When the receiver is slow, the newest
 * spans are dropped: a request never waits for its spans.
 */
public final class Spans {
  private static final int WAITING_MAX = 50_000;
  private static final int OK = 200;
  private static final int LOOKS = 20;
  private static final int BATCH_MAX = 2_000;
  private static final long BATCH_MS = 100;
  private static final Duration TIMEOUT = Duration.ofSeconds(5);
  private static final HexFormat HEX = HexFormat.of();

  private final String service;
  private final AtomicLong dropped = new AtomicLong();
  private final BlockingQueue<Span> waiting = new ArrayBlockingQueue<>(WAITING_MAX);

  /** Nanoseconds from the monotonic clock to the time of day. */
  private final long sinceEpochNs;

  /** What a layer is to the one above it, by its number in OTLP. */
  public enum Kind {
    /** A part of the service's own work. */
    INTERNAL(1),
    /** The service answers a request. */
    SERVER(2),
    /** The service calls another one. */
    CLIENT(3);

    private final int number;

    Kind(int number) {
      this.number = number;
    }
  }

  private record Span(
      Trace trace, long id, String name, Kind kind, long startedNs, long endedNs, boolean failed) {}

  /**
   * Creates an exporter that sends nothing until it is started.
   *
   * @param service the name of the service
   */
  public Spans(String service) {
    this.service = service;
    sinceEpochNs = sinceEpochNs();
  }

  /** Returns what to add to the monotonic clock: of several looks the one with the least pause. */
  private static long sinceEpochNs() {
    long least = Long.MAX_VALUE;
    long found = 0;
    for (int look = 0; look < LOOKS; look++) {
      long beforeNs = System.nanoTime();
      Instant now = Instant.now();
      long tookNs = System.nanoTime() - beforeNs;
      if (tookNs < least) {
        least = tookNs;
        long epochNs = now.getEpochSecond() * 1_000_000_000L + now.getNano();
        found = epochNs - beforeNs - tookNs / 2;
      }
    }
    return found;
  }

  /** Sends spans to an address, {@code HOST:PORT}, until the process ends. */
  public void start(String address) {
    URI place = URI.create("http://" + address + "/v1/traces");
    Thread thread = new Thread(() -> export(place), "spans");
    thread.setDaemon(true);
    thread.start();
  }

  /** Returns the id of a new span. */
  public static long id() {
    // 0 is no id
    return ThreadLocalRandom.current().nextLong() | 1;
  }

  /**
   * Keeps a span for the receiver.
   *
   * @param trace its trace, and the span above it
   * @param id its id
   * @param startedNs when it began, on the monotonic clock; it ends now
   */
  public void add(Trace trace, long id, String name, Kind kind, long startedNs, boolean failed) {
    if (trace.isWanted()) {
      Span span = new Span(trace, id, name, kind, startedNs, System.nanoTime(), failed);
      if (!waiting.offer(span) && dropped.getAndIncrement() == 0) {
        System.err.println("spans: the receiver is too slow; spans are dropped from now on");
      }
    }
  }

  private void export(URI place) {
    HttpClient client = HttpClient.newBuilder().connectTimeout(TIMEOUT).build();
    List<Span> batch = new ArrayList<>(BATCH_MAX);
    while (true) {
      try {
        Span first = waiting.poll(1, TimeUnit.SECONDS);
        if (first == null) {
          continue;
        }
        Thread.sleep(BATCH_MS);
        batch.add(first);
        waiting.drainTo(batch, BATCH_MAX - 1);
        HttpRequest request =
            HttpRequest.newBuilder(place)
                .timeout(TIMEOUT)
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(json(batch)))
                .build();
        int status = client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
        if (status != OK) {
          System.err.println("spans: the receiver answered " + status);
        }
      } catch (IOException thrown) {
        System.err.println("spans: " + batch.size() + " were not sent: " + thrown);
      } catch (InterruptedException thrown) {
        return;
      }
      batch.clear();
    }
  }

  private String json(List<Span> batch) {
    StringBuilder out = new StringBuilder(256 * batch.size() + 200);
    out.append("{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",")
        .append("\"value\":{\"stringValue\":\"")
        .append(service)
        .append("\"}}]},\"scopeSpans\":[{\"spans\":[");
    for (int place = 0; place < batch.size(); place++) {
      Span it = batch.get(place);
      out.append(place == 0 ? "" : ",").append("{\"traceId\":\"");
      out.append(HEX.toHexDigits(it.trace().high())).append(HEX.toHexDigits(it.trace().low()));
      out.append("\",\"spanId\":\"").append(HEX.toHexDigits(it.id()));
      out.append("\",\"parentSpanId\":\"").append(HEX.toHexDigits(it.trace().parent()));
      out.append("\",\"name\":\"").append(it.name());
      out.append("\",\"kind\":").append(it.kind().number);
      out.append(",\"startTimeUnixNano\":\"").append(it.startedNs() + sinceEpochNs);
      out.append("\",\"endTimeUnixNano\":\"").append(it.endedNs() + sinceEpochNs).append('"');
      out.append(it.failed() ? ",\"status\":{\"code\":2}}" : "}");
    }
    return out.append("]}]}]}").toString();
  }
}
