package org.unruly.systems;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.unruly.apps.Trace;

/** Reads the lines of a driver in place: a request makes no object. */
final class LineReader {
  private static final int LINE_BYTES_MAX = 1 << 16;
  private static final byte[] CALL = "call ".getBytes(StandardCharsets.US_ASCII);

  private static final Pattern PARENT =
      Pattern.compile("00-([0-9a-f]{16})([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]{2}");

  private final InputStream in;
  private final byte[] buffer = new byte[LINE_BYTES_MAX];
  private int start;
  private int end;
  private int filled;
  private int at;

  LineReader(InputStream in) {
    this.in = in;
  }

  /** Reads the next line; returns false at the end of the input. */
  boolean next() throws IOException {
    int from = filled == 0 ? 0 : Math.min(end + 1, filled);
    int searched = from;
    while (true) {
      for (int index = searched; index < filled; index++) {
        if (buffer[index] == '\n') {
          start = from;
          end = index;
          at = start;
          return true;
        }
      }
      System.arraycopy(buffer, from, buffer, 0, filled - from);
      filled -= from;
      searched = filled;
      from = 0;
      if (filled == buffer.length) {
        throw new IOException("a line has more than " + LINE_BYTES_MAX + " bytes");
      }
      int read = in.read(buffer, filled, buffer.length - filled);
      if (read < 0) {
        return false;
      }
      filled += read;
    }
  }

  /** Returns the line as text. */
  String text() {
    return new String(buffer, start, end - start, StandardCharsets.UTF_8);
  }

  /** Moves past the word {@code call}; returns false if the line has another. */
  boolean isCall() {
    at = start + CALL.length;
    return at <= end && Arrays.equals(buffer, start, at, CALL, 0, CALL.length);
  }

  /** Returns the next number of the line and moves past it. */
  long number() throws IOException {
    long value = 0;
    int first = at;
    while (at < end && buffer[at] != ' ') {
      int digit = buffer[at++] - '0';
      if (digit < 0 || digit > 9 || value > (Long.MAX_VALUE - digit) / 10) {
        throw new IOException("'" + text() + "' has a word that is no number");
      }
      value = 10 * value + digit;
    }
    if (at == first) {
      throw new IOException("'" + text() + "' has too few numbers");
    }
    at++;
    return value;
  }

  /** Returns the trace that the rest of the line names (W3C Trace Context), or none. */
  Trace trace() throws IOException {
    if (at > end) {
      return Trace.NONE;
    }
    String words = text();
    Matcher parts = PARENT.matcher(words).region(at - start, words.length());
    if (!parts.matches()) {
      throw new IOException("'" + words + "' does not end with a traceparent");
    }
    at = end + 1;
    return new Trace(hex(parts.group(1)), hex(parts.group(2)), hex(parts.group(3)));
  }

  private static long hex(String digits) {
    return Long.parseUnsignedLong(digits, 16);
  }

  /** Throws an exception if the line has more words. */
  void finish() throws IOException {
    if (at <= end) {
      throw new IOException("'" + text() + "' has too many words");
    }
  }
}
