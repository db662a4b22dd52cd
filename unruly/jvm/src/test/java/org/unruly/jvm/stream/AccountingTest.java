package org.unruly.jvm.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashSet;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class AccountingTest {
  private static final int WINDOW = Accounting.WINDOW;

  private final Accounting accounting = new Accounting();

  private void come(long... sequences) {
    for (long sequence : sequences) {
      accounting.accept(sequence);
    }
  }

  private void are(long messages, long lost, long duplicated, long reordered, long inFlight) {
    assertEquals(messages, accounting.messages(), "messages");
    assertEquals(lost, accounting.lost(), "lost");
    assertEquals(duplicated, accounting.duplicated(), "duplicated");
    assertEquals(reordered, accounting.reordered(), "reordered");
    assertEquals(inFlight, accounting.inFlight(), "in flight");
    assertEquals(accounting.next(), messages - duplicated + lost + inFlight, "conservation");
  }

  @Test
  void messagesInOrderAreMessagesAndNothingElse() {
    for (long sequence = 0; sequence < 3L * WINDOW; sequence++) {
      come(sequence);
    }
    are(3L * WINDOW, 0, 0, 0, 0);
  }

  @Test
  void aMissingMessageIsInFlightUntilItLeavesTheWindowAndThenLost() {
    come(0, 2);
    are(2, 0, 0, 0, 1);
    for (long sequence = 3; sequence <= WINDOW; sequence++) {
      come(sequence);
    }
    are(WINDOW, 0, 0, 0, 1);
    come(WINDOW + 1);
    are(WINDOW + 1, 1, 0, 0, 0);
  }

  @Test
  void theFirstMessagesCanBeLostToo() {
    come(3);
    are(1, 0, 0, 0, 3);
    accounting.end(4);
    are(1, 3, 0, 0, 0);
  }

  @Test
  void aLateMessageIsReorderedAndNotLost() {
    come(0, 2, 3, 1);
    accounting.end(4);
    are(4, 0, 0, 1, 0);
  }

  @Test
  void aMessageThatComesAgainIsDuplicated() {
    come(0, 1, 1, 3, 2, 2, 0);
    are(7, 0, 3, 1, 0);
  }

  @Test
  void whatComesAfterItWasCountedAsLostIsNotCountedAsComeToo() {
    come(0, 2, 2 + WINDOW);
    are(3, 1, 0, 0, WINDOW - 1);
    come(1);
    are(4, 1, 1, 0, WINDOW - 1);
  }

  @Test
  void aGapWiderThanTheWindowLosesAllThatLeft() {
    come(0, 5, 10L * WINDOW + 7);
    are(3, 9L * WINDOW + 7 - 1, 0, 0, WINDOW - 1);
    accounting.end(10L * WINDOW + 8);
    are(3, 10L * WINDOW + 5, 0, 0, 0);
  }

  @Test
  void whatTheEndSaysWasSentAndDidNotComeIsLost() {
    come(0, 1, 3);
    accounting.end(6);
    are(3, 3, 0, 0, 0);
    assertEquals(6, accounting.next());
  }

  @Test
  void ofAStreamOfWhichNothingCameTheEndTellsAllLost() {
    accounting.end(1_000_000);
    are(0, 1_000_000, 0, 0, 0);
  }

  /** Against a count by sets, where no message is later than the window. */
  @Test
  void itCountsAsOneWithoutAWindowWouldCount() {
    for (long seed = 0; seed < 20; seed++) {
      Random random = new Random(seed);
      Accounting counted = new Accounting();
      Set<Long> come = new HashSet<>();
      long highest = -1;
      long duplicated = 0;
      long reordered = 0;
      for (int message = 0; message < 5_000; message++) {
        long sequence = Math.max(0, highest + 1 + random.nextInt(9) - 5);
        counted.accept(sequence);
        if (!come.add(sequence)) {
          duplicated++;
        } else if (sequence < highest) {
          reordered++;
        }
        highest = Math.max(highest, sequence);
      }
      counted.end(highest + 3);
      String seeded = "seed " + seed;
      assertEquals(duplicated, counted.duplicated(), seeded);
      assertEquals(reordered, counted.reordered(), seeded);
      assertEquals(highest + 3 - come.size(), counted.lost(), seeded);
    }
  }
}
