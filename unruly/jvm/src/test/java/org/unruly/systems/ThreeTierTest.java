package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.h2.tools.Server;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.unruly.apps.MiddleTier;
import org.unruly.apps.Spans;

/**
 * Two replicas of a middle tier and a client, each a process, and a database that is another one.
 */
class ThreeTierTest {
  private static final String APPLICATION = "ticket-center";
  private static final long TIMEOUT_NS = 10_000_000_000L;

  @TempDir private Path folder;
  private final List<EchoProcess> processes = new ArrayList<>();
  private final int[] ports = new int[2];
  private Server database;
  private String url;
  private Connection keeper;
  private String platform;
  private EchoProcess client;
  private long requests;

  @BeforeEach
  void open() throws SQLException, IOException {
    database = Server.createTcpServer("-tcpPort", "0", "-ifNotExists").start();
    url =
        "jdbc:h2:tcp://127.0.0.1:" + database.getPort() + "/mem:t;MODE=MariaDB;LOCK_TIMEOUT=9000";
    // a database in memory is there as long as one connection
    keeper = DriverManager.getConnection(url, "sa", "x");
    for (int place = 0; place < ports.length; place++) {
      ports[place] = EchoProcess.freePort();
    }
  }

  @AfterEach
  void close() throws SQLException {
    processes.forEach(EchoProcess::close);
    keeper.close();
    database.stop();
  }

  private EchoProcess start(String verb, String... options) throws IOException {
    List<String> all = new ArrayList<>(Arrays.asList(options));
    all.add("platform=" + platform);
    all.add("application=" + APPLICATION);
    EchoProcess process = new EchoProcess(folder, verb, "three-tier", all);
    processes.add(process);
    return process;
  }

  private String reference(int place) {
    return folder.resolve("reference" + place).toString();
  }

  private EchoProcess replica(int place) throws IOException, InterruptedException {
    EchoProcess process =
        start(
            "serve",
            "host=127.0.0.1",
            "port=" + ports[place],
            "url=" + url,
            "user=sa",
            "password=x",
            "connections=4",
            "ior=" + reference(place));
    assertEquals("three-tier is ready", process.next());
    return process;
  }

  private void startClient(String replication) throws IOException, InterruptedException {
    String replicas =
        "127.0.0.1:%d:%s,127.0.0.1:%d:%s"
            .formatted(ports[0], reference(0), ports[1], reference(1));
    client =
        start(
            "call", "replicas=" + replicas, "replication=" + replication, "attempt-ms=3000");
    client.write("unruly 1 - " + TIMEOUT_NS);
    assertEquals("unruly 1", client.next());
  }

  /** Has each of three members call so often; returns the fail-overs that the client reported. */
  private List<String> call(int times) throws IOException, InterruptedException {
    List<String> failOvers = new ArrayList<>();
    for (int time = 0; time < times; time++) {
      for (int member = 0; member < 3; member++) {
        String[] words = client.call(++requests, member, 64);
        if (words[0].equals("failed-over")) {
          failOvers.add(String.join(" ", words));
          words = client.next().split(" ", 6);
        }
        assertEquals("done", words[0], String.join(" ", words));
        assertEquals(Long.toString(requests), words[1]);
      }
    }
    return failOvers;
  }

  private void assertConsistent() throws SQLException {
    MiddleTier reader = new MiddleTier(APPLICATION, url, "sa", "x", 1, new Spans("test"));
    assertEquals("", reader.contradiction());
    reader.close();
  }

  @ParameterizedTest
  @ValueSource(strings = {"http", "ejb", "jacorb", "rmi"})
  void aReplicaThatIsKilledCostsNoRequestAndIsUsedAgainWhenItIsBack(String name) throws Exception {
    platform = name;
    EchoProcess first = replica(0);
    EchoProcess second = replica(1);
    startClient("passive");
    assertEquals(List.of(), call(30));
    first.close();
    List<String> failOvers = call(30);
    // each member notices it once
    assertEquals(3, failOvers.size(), failOvers::toString);
    for (String line : failOvers) {
      List<Long> numbers =
          Arrays.stream(line.split(" ")).skip(1).map(Long::valueOf).collect(Collectors.toList());
      assertEquals(numbers.get(1), (numbers.get(0) - 1) % 3, line);
      assertTrue(numbers.get(2) <= numbers.get(3) && numbers.get(3) <= numbers.get(4), line);
    }
    replica(0);
    second.close();
    call(30);
    assertConsistent();
    assertEquals(0, client.end());
  }

  @ParameterizedTest
  @ValueSource(strings = {"http", "rmi"})
  void withActiveReplicationAReplicaThatIsKilledDelaysNoRequest(String name) throws Exception {
    platform = name;
    EchoProcess first = replica(0);
    EchoProcess second = replica(1);
    startClient("active");
    call(30);
    first.close();
    assertEquals(List.of(), call(30));
    replica(0);
    // its connections are opened again before the other one goes
    Thread.sleep(1_000);
    second.close();
    call(30);
    assertConsistent();
  }
}
