package org.unruly.systems;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** The addresses on which a process receives, as the kernel lists them. */
final class Listening {
  private static final String LISTENS = "0A";
  private static final String MAPPED = "0000000000000000FFFF0000";
  private static final String ONE = "00000000000000000000000001000000";

  private Listening() {}

  /** Returns the local addresses of listening TCP sockets and of UDP sockets, in hexadecimal. */
  static Set<String> addresses(long pid) throws IOException {
    Path process = Path.of("/proc", Long.toString(pid));
    Set<String> own = new HashSet<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(process.resolve("fd"))) {
      for (Path file : files) {
        own.add(target(file));
      }
    }
    Set<String> found = new TreeSet<>();
    for (String kind : List.of("tcp", "tcp6", "udp", "udp6")) {
      List<String> lines = Files.readAllLines(process.resolve("net").resolve(kind));
      for (String line : lines.subList(1, lines.size())) {
        String[] words = line.strip().split("\\s+");
        boolean receives = kind.startsWith("udp") || words[3].equals(LISTENS);
        if (receives && own.contains("socket:[" + words[9] + "]")) {
          found.add(kind + " " + words[1]);
        }
      }
    }
    return found;
  }

  /** A file may be closed between the listing and the look at it. */
  private static String target(Path file) {
    try {
      return Files.readSymbolicLink(file).toString();
    } catch (IOException thrown) {
      return "";
    }
  }

  /** Returns true if an address is of the loopback network. */
  static boolean isLoopback(String address) {
    String hexadecimal = address.split(" ")[1].split(":")[0];
    String last = hexadecimal.replaceFirst("^" + MAPPED, "");
    // IPv4 is in the byte order of the host: 127 is last
    return hexadecimal.equals(ONE) || last.length() == 8 && last.endsWith("7F");
  }
}
