package org.unruly.apps;

import java.util.List;
import org.unruly.jvm.Problem;

/** The applications, by name. */
final class Applications {
  private static final List<Application> ALL =
      List.of(
          new Board(),
          new SuDuelKu(),
          new Blackjack(),
          new Ftex(),
          new Ejbay(),
          new Mafia(),
          new ParknPark(),
          new TicketCenter());

  private Applications() {}

  /** Returns the names of all applications. */
  static List<String> names() {
    return ALL.stream().map(Application::name).toList();
  }

  /** Returns the application of a name. */
  static Application of(String name) {
    return ALL.stream()
        .filter(application -> application.name().equals(name))
        .findFirst()
        .orElseThrow(
            () ->
                new Problem(
                    "apps",
                    "the application is '" + name + "'",
                    "one of " + String.join(", ", names()),
                    "see unruly/jvm/README.md"));
  }
}
