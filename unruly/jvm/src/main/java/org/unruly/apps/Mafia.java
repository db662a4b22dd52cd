package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * Plays Mafia: members hold the characters of a town, talk, and vote who hangs. The mafia kills
 * each night, and a game that ends begins again.
 */
final class Mafia implements Application {
  static final int GAMES = 20;

  private static final int CHARACTERS = 8;

  /** A day ends after this many votes; some characters have nobody who votes. */
  private static final int VOTES_OF_A_DAY = 3;

  private static final List<String> WORDS =
      List.of("I trust you", "who was out last night?", "not me", "hang them", "wait", "the baker");
  private static final Chairs CHAIRS = new Chairs("mafia_games", "characters", CHARACTERS);
  static final Members MEMBERS =
      new Members(
          "mafiosi",
          "",
          "deeds",
          "deed varchar(10), game int, turn bigint, target int, words varchar(100),"
              + " outcome varchar(12)");

  @Override
  public String name() {
    return "mafia";
  }

  @Override
  public List<String> tables() {
    List<String> all = new ArrayList<>();
    all.addAll(
        CHAIRS.tables(
            "turn bigint not null default 0, votes int not null default 0",
            "is_mafia int not null default 0, is_alive int not null default 1,"
                + " has_voted int not null default 0, votes int not null default 0"));
    all.addAll(MEMBERS.tables("create index if not exists deeds_game on deeds(game, deed, id)"));
    return List.copyOf(all);
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (CHAIRS.fill(database, GAMES)) {
      for (int game = 1; game <= GAMES; game++) {
        restart(database, game, game);
      }
    }
  }

  /** Brings all characters of a game to life; the seed chooses two that belong to the mafia. */
  private static void restart(Connection database, long game, long seed) throws SQLException {
    Sql.change(
        database,
        "update characters set is_alive = 1, has_voted = 0, votes = 0,"
            + " is_mafia = case when chair in (?, ?) then 1 else 0 end where game = ?",
        Arguments.within(seed, CHARACTERS),
        Arguments.within(seed + CHARACTERS / 2, CHARACTERS),
        game);
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        new Operation("messages", 35, false, Arguments.below(GAMES), Mafia::messages),
        new Operation("game", 20, false, Arguments.below(GAMES), Mafia::game),
        new Operation("profile", 8, false, Arguments.below(), Mafia::profile),
        new Operation("say", 20, true, Arguments.below(GAMES, WORDS.size()), Mafia::say),
        new Operation("vote", 12, true, Arguments.below(CHARACTERS), Mafia::vote),
        new Operation("enter", 5, true, Arguments.below(GAMES), Mafia::enter));
  }

  private static int gameOf(long[] arguments) {
    return 1 + Arguments.within(arguments[0], GAMES);
  }

  private static String messages(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select words from deeds where game = ? and deed = 'say' order by id desc limit 5",
        gameOf(arguments));
  }

  private static String game(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "the living and their votes: "
        + Sql.text(
            database,
            "select chair, votes from characters where game = ? and is_alive = 1 order by chair",
            gameOf(arguments));
  }

  private static String profile(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "game and character: "
        + Sql.text(database, "select game, chair from characters where member = ?", member);
  }

  private static String say(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    String words = WORDS.get(Arguments.within(arguments[1], WORDS.size()));
    MEMBERS.record(
        database, member, number, "say", gameOf(arguments), null, null, words, "said");
    return "said";
  }

  private static String enter(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int game = gameOf(arguments);
    long chair = CHAIRS.take(database, member, game);
    MEMBERS.record(database, member, number, "enter", game, null, chair, null, "entered");
    return "character " + chair + " of game " + game;
  }

  private static String vote(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long game = CHAIRS.lockGame(database, member);
    int target = Arguments.within(arguments[0], CHARACTERS);
    long turn = Sql.number(database, "select turn from mafia_games where id = ?", game);
    long[] own =
        Sql.row(
                database,
                "select is_alive, has_voted, chair from characters where game = ? and member = ?",
                game,
                member)
            .orElse(new long[3]);
    String alive = "select is_alive from characters where game = ? and chair = ?";
    String outcome = "cast";
    if (game == 0) {
      outcome = "no character";
    } else if (own[0] == 0) {
      outcome = "dead";
    } else if (own[1] == 1) {
      outcome = "voted before";
    } else if (Sql.number(database, alive, game, target) == 0) {
      outcome = "target dead";
    }
    if (outcome.equals("cast")) {
      cast(database, game, turn, own[2], target);
    }
    MEMBERS.record(database, member, number, "vote", game, turn, target, null, outcome);
    return outcome;
  }

  private static void cast(Connection database, long game, long turn, long voter, int target)
      throws SQLException {
    Sql.change(
        database,
        "update characters set votes = votes + case when chair = ? then 1 else 0 end,"
            + " has_voted = case when chair = ? then 1 else has_voted end"
            + " where game = ? and chair in (?, ?)",
        target,
        voter,
        game,
        target,
        voter);
    Sql.change(database, "update mafia_games set votes = votes + 1 where id = ?", game);
    if (Sql.number(database, "select votes from mafia_games where id = ?", game)
        >= VOTES_OF_A_DAY) {
      endDay(database, game, turn);
    }
  }

  /** Hangs who has the most votes, lets the mafia kill one other, and restarts a game that ends. */
  private static void endDay(Connection database, long game, long turn) throws SQLException {
    List<long[]> living =
        Sql.rows(
            database,
            "select chair, is_mafia from characters where game = ? and is_alive = 1"
                + " order by votes desc, chair",
            game);
    long hanged = living.remove(0)[0];
    long mafia = living.stream().filter(row -> row[1] == 1).count();
    long town = living.size() - mafia;
    long killed =
        living.stream().filter(row -> row[1] == 0).mapToLong(row -> row[0]).findFirst().orElse(-1);
    if (mafia == 0 || town - 1 <= mafia) {
      restart(database, game, game + turn);
    } else {
      Sql.change(
          database,
          "update characters set votes = 0, has_voted = 0,"
              + " is_alive = case when chair in (?, ?) then 0 else is_alive end where game = ?",
          hanged,
          killed,
          game);
    }
    Sql.change(database, "update mafia_games set votes = 0, turn = turn + 1 where id = ?", game);
  }

  @Override
  public Tally tally(Connection database, long member) throws SQLException {
    return MEMBERS.tally(database, member);
  }

  @Override
  public Optional<String> contradiction(Connection database) throws SQLException {
    return MEMBERS.contradiction(
        database,
        new Check(
            "characters: %2$s of game %1$s counts %3$s votes, but %4$s were cast",
            "select c.game, c.chair, c.votes, count(d.id) from characters c"
                + " join mafia_games g on g.id = c.game"
                + " left join deeds d on d.game = c.game and d.deed = 'vote' and d.turn = g.turn"
                + " and d.target = c.chair and d.outcome = 'cast'"
                + " group by c.game, c.chair, c.votes having c.votes <> count(d.id)"),
        new Check(
            "mafia_games: %s counts %s votes, but its characters count %s, and %s voted",
            "select g.id, g.votes, sum(c.votes), sum(c.has_voted) from mafia_games g"
                + " join characters c on c.game = g.id group by g.id, g.votes"
                + " having g.votes <> sum(c.votes) or g.votes <> sum(c.has_voted)"),
        new Check(
            "characters: %s of game %s belong to the mafia, of 2",
            "select sum(is_mafia), game from characters group by game having sum(is_mafia) <> 2"));
  }
}
