package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import org.junit.jupiter.api.Test;

class AsksTest {
  private static final long PATIENCE_NS = 100;

  private final Asks asks = new Asks(PATIENCE_NS);

  private static Ask ask(long ticket, long intendedNs) {
    return new Ask(ticket, intendedNs, 0);
  }

  @Test
  void whatIsDueIsTakenInTheOrderOfItsTimes() {
    asks.add(ask(1, 30), 0);
    asks.add(ask(2, 10), 0);
    asks.add(ask(3, 20), 0);
    assertEquals(10, asks.nextNs());
    assertNull(asks.take(9));
    assertEquals(2, asks.take(25).ticket());
    assertEquals(3, asks.take(25).ticket());
    assertNull(asks.take(25));
    assertEquals(30, asks.nextNs());
    assertEquals(1, asks.take(30).ticket());
    assertEquals(Long.MAX_VALUE, asks.nextNs());
  }

  @Test
  void whatIsOpenOrDueEndsWithTheConnectionAndWhatIsNotYetDueWaits() {
    asks.opened(ask(1, 10));
    asks.opened(ask(2, 20));
    asks.ended(1);
    asks.add(ask(3, 30), 20);
    asks.add(ask(4, 40), 20);
    assertEquals(List.of(2L, 3L), asks.endAll(35));
    assertEquals(List.of(), asks.endAll(35));
    assertEquals(4, asks.take(40).ticket());
  }

  @Test
  void whatIsOlderThanThePatienceIsForgotten() {
    for (long ticket = 0; ticket < 1000; ticket++) {
      asks.opened(ask(ticket, ticket));
      asks.add(ask(ticket, ticket), ticket);
    }
    // of each kind those of the last patience
    assertEquals(2 * (PATIENCE_NS + 1), asks.size());
    assertEquals(999 - PATIENCE_NS, asks.nextNs());
    assertNull(asks.take(2000));
    assertEquals(0, asks.size());
  }
}
