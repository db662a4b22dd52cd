package org.unruly.systems;

import java.util.Arrays;
import java.util.List;
import org.unruly.jvm.Options;

/**
 * A loop by hand around one middleware library: one thread calls as fast as replies come, without the
 * lines of a load generator. {@code Loop SYSTEM CALLS BYTES key=value...} prints the median in ns.
 */
public final class Loop {
  private static final long TIMEOUT_NS = 5_000_000_000L;

  private Loop() {}

  /** Warms up with as many calls as it measures. */
  public static void main(String[] words) throws Exception {
    EchoSystem system =
        switch (words[0]) {
          case "rmi" -> new RmiEcho();
          case "jacorb" -> new JacorbEcho();
          case "grpc-java" -> new GrpcEcho();
          default -> throw new IllegalArgumentException(words[0]);
        };
    int calls = Integer.parseInt(words[1]);
    byte[] payload = new byte[Integer.parseInt(words[2])];
    List<String> pairs = Arrays.asList(words).subList(3, words.length);
    Connection connection =
        system.client(new Options(pairs, system.keys()), TIMEOUT_NS).connect();
    long[] tookNs = new long[calls];
    for (int round = 0; round < 2; round++) {
      for (int call = 0; call < calls; call++) {
        long sentNs = System.nanoTime();
        connection.call(payload);
        tookNs[call] = System.nanoTime() - sentNs;
        connection.check(payload);
      }
    }
    Arrays.sort(tookNs);
    System.out.println(tookNs[calls / 2]);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
