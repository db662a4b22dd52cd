package org.unruly.jvm.watch;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.unruly.jvm.foreign.ForeignRecord;

/** Memory of this process. */
final class Memory {
  private static final Path STATM = Path.of("/proc/self/statm");

  /** Linux has pages of 4 KiB on x86-64, and on most arm64; /proc/self/smaps tells the size of this host's. */
  private static final long PAGE_BYTES = pageBytes();

  private Memory() {}

  /** Resident set, bytes, or absent. */
  static long residentBytes() {
    try {
      String[] pages = Files.readString(STATM, StandardCharsets.US_ASCII).split(" ", 3);
      return Long.parseLong(pages[1]) * PAGE_BYTES;
    } catch (IOException | NumberFormatException thrown) {
      return ForeignRecord.ABSENT;
    }
  }

  private static long pageBytes() {
    try (var lines = Files.lines(Path.of("/proc/self/smaps"), StandardCharsets.ISO_8859_1)) {
      String line = lines.filter(one -> one.startsWith("KernelPageSize:")).findFirst().orElseThrow();
      return Long.parseLong(line.replaceAll("\\D", "")) << 10;
    } catch (IOException | RuntimeException thrown) {
      return 4096;
    }
  }
}
