package org.unruly.board;

import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;

/** What a visitor of the bulletin board can do: a page each, with the names that RUBBoS gave them. */
public enum Interaction {
  STORIES_OF_THE_DAY(Kind.READS),
  REGISTER(Kind.STATIC),
  REGISTER_USER(Kind.WRITES),
  BROWSE(Kind.STATIC),
  BROWSE_CATEGORIES(Kind.READS),
  BROWSE_STORIES_BY_CATEGORY(Kind.READS),
  OLDER_STORIES(Kind.READS),
  VIEW_STORY(Kind.READS),
  POST_COMMENT(Kind.READS),
  STORE_COMMENT(Kind.WRITES),
  VIEW_COMMENT(Kind.READS),
  MODERATE_COMMENT(Kind.READS),
  STORE_MODERATOR_LOG(Kind.WRITES),
  SUBMIT_STORY(Kind.READS),
  STORE_STORY(Kind.WRITES),
  SEARCH(Kind.STATIC),
  SEARCH_IN_STORIES(Kind.READS),
  SEARCH_IN_COMMENTS(Kind.READS),
  SEARCH_IN_USERS(Kind.READS),
  AUTHOR_LOGIN(Kind.STATIC),
  AUTHOR_TASKS(Kind.READS),
  REVIEW_STORIES(Kind.READS),
  ACCEPT_STORY(Kind.WRITES),
  REJECT_STORY(Kind.WRITES);

  /** What an interaction asks of the database. */
  enum Kind {
    /** Nothing: its page is always the same. */
    STATIC,
    /** It reads. */
    READS,
    /** It writes, and reads. */
    WRITES
  }

  private final Kind kind;

  Interaction(Kind kind) {
    this.kind = kind;
  }

  Kind kind() {
    return kind;
  }

  /** Returns the path of its page: {@code /ViewStory}. */
  String path() {
    StringBuilder path = new StringBuilder("/");
    for (String word : name().split("_")) {
      path.append(word.charAt(0)).append(word.substring(1).toLowerCase(Locale.ROOT));
    }
    return path.toString();
  }

  /** Returns the interaction of a path. */
  static Optional<Interaction> of(String path) {
    return Arrays.stream(values()).filter(it -> it.path().equals(path)).findFirst();
  }
}
