package org.unruly.systems;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import org.unruly.apps.Trace;
import org.unruly.jvm.Options;

/** The client of a system: it reads requests as lines and writes their results as lines. */
final class CallProgram {
  private static final int CLIENTS_MAX = 1 << 20;

  private final String name;
  private final EchoSystem system;
  private final Options options;
  private final LineReader requests;
  private final LineWriter lines;
  private WorkerPool[] pools = {};

  CallProgram(String name, EchoSystem system, Options options, InputStream in, LineWriter lines) {
    this.name = name;
    this.system = system;
    this.options = options;
    this.requests = new LineReader(in);
    this.lines = lines;
  }

  /** Answers requests until the input ends. */
  void run() throws Exception {
    if (!requests.next()) {
      return;
    }
    try (EchoSystem.Client client = system.client(options, timeoutNs(requests.text()))) {
      Callers callers = new Callers(client, name);
      callers.start();
      lines.text("unruly 1");
      while (requests.next()) {
        if (!requests.isCall()) {
          throw new IOException("'" + requests.text() + "' is no call");
        }
        long request = requests.number();
        long number = requests.number();
        long bytes = requests.number();
        Trace trace = requests.trace();
        requests.finish();
        pool(number, callers).submit(request, bytes, trace);
      }
    }
  }

  private static long timeoutNs(String greeting) throws IOException {
    String[] words = greeting.split(" ");
    try {
      if (words.length == 4 && words[0].equals("unruly") && words[1].equals("1")) {
        return Math.max(1, Long.parseLong(words[3]));
      }
    } catch (NumberFormatException thrown) {
      // reported below
    }
    throw new IOException("'" + greeting + "' is not 'unruly 1 LEVEL TIMEOUT'");
  }

  private WorkerPool pool(long number, Callers callers) throws IOException {
    if (number >= CLIENTS_MAX) {
      throw new IOException("client " + number + " is above " + (CLIENTS_MAX - 1));
    }
    int client = (int) number;
    if (client >= pools.length) {
      pools = Arrays.copyOf(pools, Math.max(client + 1, 2 * pools.length));
    }
    if (pools[client] == null) {
      pools[client] = new WorkerPool(number, callers, lines);
    }
    return pools[client];
  }
}
