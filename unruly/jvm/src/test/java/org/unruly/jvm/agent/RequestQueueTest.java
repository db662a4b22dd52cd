package org.unruly.jvm.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.unruly.jvm.agent.RequestQueue.Request;

class RequestQueueTest {
  private static final long TIMEOUT_NS = 100;

  private final RequestQueue requests = new RequestQueue(TIMEOUT_NS);

  private static Request ask(long ticket, long intendedNs) {
    return new Request(ticket, intendedNs, 0);
  }

  @Test
  void whatIsDueIsTakenInTheOrderOfItsTimes() {
    requests.add(ask(1, 30), 0);
    requests.add(ask(2, 10), 0);
    requests.add(ask(3, 20), 0);
    assertEquals(10, requests.nextNs());
    assertNull(requests.take(9));
    assertEquals(2, requests.take(25).ticket());
    assertEquals(3, requests.take(25).ticket());
    assertNull(requests.take(25));
    assertEquals(30, requests.nextNs());
    assertEquals(1, requests.take(30).ticket());
    assertEquals(Long.MAX_VALUE, requests.nextNs());
  }

  @Test
  void whatIsOpenOrDueEndsWithTheConnectionAndWhatIsNotYetDueWaits() {
    requests.opened(ask(1, 10));
    requests.opened(ask(2, 20));
    requests.ended(1);
    requests.add(ask(3, 30), 20);
    requests.add(ask(4, 40), 20);
    assertEquals(List.of(2L, 3L), requests.endAll(35));
    assertEquals(List.of(), requests.endAll(35));
    assertEquals(4, requests.take(40).ticket());
  }

  @Test
  void aRequestOlderThanTheTimeoutIsForgotten() {
    for (long ticket = 0; ticket < 1000; ticket++) {
      requests.opened(ask(ticket, ticket));
      requests.add(ask(ticket, ticket), ticket);
    }
    // the requests of each kind within the last timeout
    assertEquals(2 * (TIMEOUT_NS + 1), requests.size());
    assertEquals(999 - TIMEOUT_NS, requests.nextNs());
    assertNull(requests.take(2000));
    assertEquals(0, requests.size());
  }
}
