package org.unruly.systems;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;

/** Writes whole lines of a driver, from any thread; a result makes no object. */
final class LineWriter {
  private static final int WORDS_MAX = 300;
  private static final byte[] DONE = "done ".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] FAILED = "failed ".getBytes(StandardCharsets.US_ASCII);

  private static final byte[] FAILED_OVER = "failed-over ".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] WRONG = "wrong ".getBytes(StandardCharsets.US_ASCII);

  private final OutputStream out;
  private final byte[] line = new byte[2 * WORDS_MAX];
  private int length;

  LineWriter(OutputStream out) {
    this.out = out;
  }

  /** Writes a line of text, such as {@code unruly 1}. */
  synchronized void text(String words) {
    length = 0;
    add(words);
    flush();
  }

  /** Writes that a call was answered. */
  synchronized void done(long request, long sentNs, long receivedNs) {
    length = 0;
    add(DONE);
    stamps(request, sentNs, receivedNs);
    flush();
  }

  /** Writes that a call failed. */
  synchronized void failed(long request, long sentNs, long receivedNs, Failure failure) {
    boolean isWrong = failure.kind() == Failure.Kind.WRONG;
    length = 0;
    add(isWrong ? WRONG : FAILED);
    stamps(request, sentNs, receivedNs);
    line[length++] = ' ';
    if (!isWrong) {
      add(failure.kind().word());
      line[length++] = ' ';
    }
    add(failure.getMessage());
    flush();
  }

  /** Writes that a request of a client was sent again to another server. */
  synchronized void failedOver(long request, long client, FailOver it) {
    length = 0;
    add(FAILED_OVER);
    for (long value : new long[] {request, client, it.detectedNs(), it.resentNs()}) {
      number(value);
      line[length++] = ' ';
    }
    number(it.answeredNs());
    flush();
  }

  private void stamps(long request, long sentNs, long receivedNs) {
    number(request);
    line[length++] = ' ';
    number(sentNs);
    line[length++] = ' ';
    number(receivedNs);
  }

  private void add(byte[] bytes) {
    System.arraycopy(bytes, 0, line, length, bytes.length);
    length += bytes.length;
  }

  /** Adds text on one line: libraries put line ends and other alphabets into their messages. */
  private void add(String words) {
    for (int index = 0; index < Math.min(words.length(), WORDS_MAX); index++) {
      char letter = words.charAt(index);
      line[length++] = (byte) (letter < ' ' ? ' ' : letter > '~' ? '?' : letter);
    }
  }

  private void number(long value) {
    int digits = 1;
    for (long rest = value / 10; rest != 0; rest /= 10) {
      digits++;
    }
    long rest = value;
    for (int index = length + digits - 1; index >= length; index--) {
      line[index] = (byte) ('0' + rest % 10);
      rest /= 10;
    }
    length += digits;
  }

  private void flush() {
    line[length++] = '\n';
    try {
      out.write(line, 0, length);
      out.flush();
    } catch (IOException thrown) {
      // the reader is gone, so the input ends too, which ends the process
      System.err.println("no one reads the results: " + thrown.getMessage());
    }
  }
}
