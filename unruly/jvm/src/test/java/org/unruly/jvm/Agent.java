package org.unruly.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.File;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;

/** An agent for tests: starts a process, and speaks with it. */
final class Agent implements AutoCloseable {
  private static final long TIMEOUT_S = 30;

  private final Path folder = Files.createTempDirectory("unruly");
  private final Path path = folder.resolve("s");
  private final ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
  private final List<ForeignRecord> records = new ArrayList<>();
  final Process process;
  private SocketChannel channel;

  Agent(List<String> flags, String... words) throws IOException {
    server.bind(UnixDomainSocketAddress.of(path));
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(flags);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), "org.unruly.jvm.Main"));
    command.addAll(List.of(words));
    command.add("socket=" + path);
    process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(said().toFile()).start();
    // a process that ends before it connects would be waited for in vain
    process.onExit().thenRun(this::connectInItsStead);
    channel = server.accept();
  }

  /** Returns the next record of a kind; records before it are kept. */
  ForeignRecord await(int kind) throws IOException {
    for (ForeignRecord record = read(); record != null; record = read()) {
      if (record.kind() == kind) {
        return record;
      }
      if (record.kind() == Kind.FAILURE) {
        return fail("waiting for " + kind + ": " + text());
      }
    }
    return fail("the process left before it told " + kind + ": " + text());
  }

  void report(int kind, long... fields) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(ForeignRecord.BYTES);
    ForeignRecord.write(buffer, kind, fields, 0, fields.length);
    channel.write(buffer.flip());
  }

  /** Reads until the socket's end, and returns the exit code of the process. */
  int awaitEnd() throws IOException, InterruptedException {
    while (read() != null) {
      // kept
    }
    assertTrue(process.waitFor(TIMEOUT_S, TimeUnit.SECONDS));
    return process.exitValue();
  }

  /** Has the socket end, as it does when an agent is killed. */
  void leave() throws IOException {
    channel.close();
  }

  List<ForeignRecord> of(int kind) {
    return records.stream().filter(record -> record.kind() == kind).toList();
  }

  List<Integer> kinds() {
    return records.stream().map(ForeignRecord::kind).toList();
  }

  /** Why the process ended, as it told, when it told nothing else. */
  String onlyFailure() {
    int last = records.size() - 1;
    ByteBuffer bytes = ByteBuffer.allocate(records.size() * ForeignRecord.TEXT_BYTES);
    for (int at = 0; at <= last; at++) {
      assertEquals(at < last ? Kind.WORDS : Kind.FAILURE, records.get(at).kind());
      bytes.slice(at * ForeignRecord.TEXT_BYTES, ForeignRecord.TEXT_BYTES).asLongBuffer().put(records.get(at).fields());
    }
    return new String(bytes.array(), StandardCharsets.UTF_8).replace("\0", "");
  }

  /** What the process said on stdout and stderr. */
  String text() throws IOException {
    return Files.readString(said());
  }

  @Override
  public void close() throws IOException {
    process.destroyForcibly();
    channel.close();
    server.close();
    for (File file : folder.toFile().listFiles()) {
      Files.delete(file.toPath());
    }
    Files.delete(folder);
  }

  private Path said() {
    return folder.resolve("said");
  }

  private ForeignRecord read() throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(ForeignRecord.BYTES);
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        return null;
      }
    }
    ForeignRecord record = ForeignRecord.read(buffer.flip());
    records.add(record);
    return record;
  }

  private void connectInItsStead() {
    try {
      SocketChannel.open(UnixDomainSocketAddress.of(path)).close();
    } catch (IOException thrown) {
      // the agent is closed
    }
  }
}
