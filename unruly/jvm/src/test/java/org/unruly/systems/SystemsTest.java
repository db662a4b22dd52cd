package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Each system: its server and a client of it, in processes of their own. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class SystemsTest {
  private static final Map<String, EchoPair> PAIRS = new TreeMap<>();
  private static final long BACK_NS = TimeUnit.SECONDS.toNanos(30);
  private static final int CLIENTS = 4;
  private static final int CALLS = 40;

  @TempDir private static Path folder;

  static Stream<String> systems() {
    return Stream.of(
        "jvm-tcp", "jvm-nio", "http", "grpc-java", "rmi", "jacorb", "ejb", "jgroups", "aeron");
  }

  @AfterAll
  static void end() {
    PAIRS.values().forEach(EchoPair::close);
  }

  private static EchoPair pair(String system) throws IOException {
    EchoPair pair = PAIRS.get(system);
    if (pair == null) {
      pair = new EchoPair(system, Files.createDirectory(folder.resolve(system)));
      PAIRS.put(system, pair);
    }
    return pair;
  }

  @ParameterizedTest
  @MethodSource("systems")
  void payloadsOfAnyLengthComeBackWithTimesOfTheMonotonicClock(String system) throws Exception {
    EchoPair pair = pair(system);
    pair.client();
    for (int bytes : new int[] {4, 0, 16, 1 << 16, 300_000}) {
      long beforeNs = System.nanoTime();
      String[] words = pair.call(0, bytes);
      assertEquals("done", words[0], () -> String.join(" ", words));
      long sentNs = Long.parseLong(words[2]);
      long receivedNs = Long.parseLong(words[3]);
      assertTrue(beforeNs < sentNs && sentNs < receivedNs && receivedNs < System.nanoTime());
    }
  }

  @ParameterizedTest
  @MethodSource("systems")
  void requestsOfSeveralClientsAreOpenAtOnce(String system) throws Exception {
    EchoProcess client = pair(system).client();
    Set<String> open = new HashSet<>();
    for (int request = 0; request < CALLS; request++) {
      client.write("call " + (1_000_000 + request) + " " + request % CLIENTS + " 1000");
      open.add(Integer.toString(1_000_000 + request));
    }
    while (!open.isEmpty()) {
      String line = client.next();
      String[] words = line.split(" ");
      assertEquals("done", words[0], line);
      assertTrue(open.remove(words[1]), line);
    }
  }

  @ParameterizedTest
  @MethodSource("systems")
  void aPayloadAboveTheLimitFailsAndTheNextOneDoesNot(String system) throws Exception {
    EchoPair pair = pair(system);
    String[] words = pair.call(0, EchoSystem.MAX_BYTES + 1L);
    assertEquals("failed", words[0]);
    int limit = system.equals("aeron") ? 524_280 : EchoSystem.MAX_BYTES;
    String named = "bytes is above the limit of " + system + ", " + limit + " bytes";
    assertTrue(words[4].equals("store") && words[5].endsWith(named), String.join(" ", words));
    assertEquals("done", pair.call(0, 4)[0]);
  }

  @ParameterizedTest
  @MethodSource("systems")
  void nothingListensBeyondLoopback(String system) throws Exception {
    EchoPair pair = pair(system);
    Set<String> found = Listening.addresses(pair.server().process.pid());
    assertFalse(found.isEmpty());
    found.addAll(Listening.addresses(pair.client().process.pid()));
    assertTrue(found.stream().allMatch(Listening::isLoopback), found::toString);
  }

  @ParameterizedTest
  @MethodSource("systems")
  void garbageOnThePortDoesNotStopTheServer(String system) throws Exception {
    EchoPair pair = pair(system);
    pair.server();
    byte[] garbage = new byte[1_000];
    new Random(1).nextBytes(garbage);
    InetAddress host = InetAddress.getLoopbackAddress();
    if (system.equals("aeron")) {
      try (DatagramSocket socket = new DatagramSocket()) {
        socket.send(new DatagramPacket(garbage, garbage.length, host, pair.port));
      }
    } else {
      try (Socket socket = new Socket(host, pair.port)) {
        socket.getOutputStream().write(garbage);
      }
    }
    assertEquals("done", pair.call(0, 4)[0]);
    assertTrue(pair.server().process.isAlive());
  }

  @ParameterizedTest
  @MethodSource("systems")
  void callsFailWhileTheServerIsGoneAndAreAnsweredWhenItIsBack(String system) throws Exception {
    EchoPair pair = pair(system);
    assertEquals("done", pair.call(0, 16)[0]);
    pair.killServer();
    String[] words = pair.call(0, 16);
    assertEquals("failed", words[0]);
    assertTrue(Set.of("disconnected", "unavailable").contains(words[4]), words[4]);
    pair.server();
    long untilNs = System.nanoTime() + BACK_NS;
    while (!words[0].equals("done")) {
      assertTrue(System.nanoTime() < untilNs, String.join(" ", words));
      words = pair.call(0, 16);
    }
  }

  @ParameterizedTest
  @MethodSource("systems")
  void theClientEndsWithItsInput(String system) throws Exception {
    EchoPair pair = pair(system);
    assertEquals("done", pair.call(0, 4)[0]);
    assertEquals(0, pair.endClient());
  }
}
