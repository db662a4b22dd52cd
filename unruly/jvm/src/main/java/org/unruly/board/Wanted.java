package org.unruly.board;

import java.util.function.UnaryOperator;

/** Holds the parameters of a request. Each id is mapped to a row that exists. */
public record Wanted(int story, int comment, int category, int user, int page, String word) {
  /** Reads the parameters of a request; one that is missing or no number is 0. */
  public static Wanted of(UnaryOperator<String> parameter) {
    long id = number(parameter.apply("id"));
    return new Wanted(
        within(id, Schema.STORIES),
        within(id, Schema.STORIES * Schema.COMMENTS_OF_A_STORY),
        within(id, Schema.CATEGORIES),
        within(id, Schema.USERS),
        (int) Math.floorMod(number(parameter.apply("page")), 20L),
        Schema.WORDS.get((int) Math.floorMod(id, (long) Schema.WORDS.size())));
  }

  private static int within(long id, int most) {
    return 1 + (int) Math.floorMod(id, (long) most);
  }

  private static long number(String text) {
    try {
      return text == null ? 0 : Long.parseLong(text);
    } catch (NumberFormatException thrown) {
      return 0;
    }
  }
}
