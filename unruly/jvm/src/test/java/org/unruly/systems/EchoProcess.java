package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The server or the client of a system in a process of its own, and the lines that it writes. */
final class EchoProcess implements AutoCloseable {
  static final long TIMEOUT_S = 30;
  private static final String END = "(it ended)";

  final Process process;
  private final Path log;
  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

  EchoProcess(Path folder, String verb, String system, List<String> options) throws IOException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.add("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED");
    command.addAll(List.of("-Djava.io.tmpdir=" + folder, "-cp", classPath(system, options)));
    command.addAll(List.of("org.unruly.systems.Main", verb, system));
    command.addAll(options);
    log = Files.createTempFile(folder, verb, ".log");
    ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile());
    process = builder.redirectError(log.toFile()).start();
    Thread reading = new Thread(this::read, "read");
    reading.setDaemon(true);
    reading.start();
  }

  /** OpenEJB and JacORB each bring the classes of CORBA, so a service has one or the other. */
  private static String classPath(String system, List<String> options) {
    boolean isEjb = system.equals("ejb") || options.contains("platform=ejb");
    String other = isEjb ? "jacorb" : "yoko";
    Stream<String> parts = Arrays.stream(System.getProperty("java.class.path").split(":"));
    return parts.filter(it -> !it.contains(other)).collect(Collectors.joining(File.pathSeparator));
  }

  /** Returns a port of loopback that is free now. */
  static int freePort() throws IOException {
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return free.getLocalPort();
    }
  }

  private void read() {
    try (BufferedReader reader = process.inputReader(StandardCharsets.US_ASCII)) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        lines.add(line);
      }
    } catch (IOException thrown) {
      // it was killed
    }
    lines.add(END);
  }

  /** Writes a line to it. */
  void write(String line) throws IOException {
    process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    process.getOutputStream().flush();
  }

  /** Returns the next line that it writes. */
  String next() throws IOException, InterruptedException {
    String line = lines.poll(TIMEOUT_S, TimeUnit.SECONDS);
    assertNotNull(line, () -> "no line; its log: " + text());
    if (line.equals(END)) {
      fail("it ended; its log: " + text());
    }
    return line;
  }

  /** Writes a call and returns the words of its result. */
  String[] call(long request, int client, long bytes) throws IOException, InterruptedException {
    write("call " + request + " " + client + " " + bytes);
    return next().split(" ", 6);
  }

  private String text() {
    try {
      return Files.readString(log);
    } catch (IOException thrown) {
      return thrown.toString();
    }
  }

  /** Closes its input and returns its exit code. */
  int end() throws IOException, InterruptedException {
    process.getOutputStream().close();
    if (!process.waitFor(TIMEOUT_S, TimeUnit.SECONDS)) {
      fail("it goes on after its input has ended");
    }
    return process.exitValue();
  }

  /** Kills it and waits until it is gone. */
  @Override
  public void close() {
    process.destroyForcibly().onExit().join();
  }
}
