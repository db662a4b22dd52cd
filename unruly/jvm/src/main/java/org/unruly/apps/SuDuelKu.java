package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Lets up to five players solve the same sudoku at once, and ranks them. */
final class SuDuelKu implements Application {
  static final int DUELS = 8;

  private static final int SIDE = 9;
  private static final int BOX = 3;
  private static final int CELLS = SIDE * SIDE;
  private static final Chairs CHAIRS = new Chairs("duels", "duel_chairs", 5);
  static final Members MEMBERS =
      new Members(
          "duelists",
          "wins bigint not null default 0",
          "guesses",
          "duel int, turn bigint, cell int, digit int, outcome varchar(12)");

  @Override
  public String name() {
    return "su-duel-ku";
  }

  @Override
  public List<String> tables() {
    List<String> all = new ArrayList<>();
    all.addAll(
        CHAIRS.tables(
            "turn bigint not null default 0, filled int not null default 0",
            "score int not null default 0"));
    all.addAll(
        MEMBERS.tables(
            // an empty cell has the digit 0
            "create table if not exists duel_cells(duel int not null, cell int not null,"
                + " across int not null, down int not null, box int not null, given int not null,"
                + " solution int not null, digit int not null, primary key(duel, cell))",
            "create index if not exists duelists_wins on duelists(wins)",
            "create index if not exists guesses_duel on guesses(duel, turn)"));
    return List.copyOf(all);
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (!CHAIRS.fill(database, DUELS)) {
      return;
    }
    for (int duel = 1; duel <= DUELS; duel++) {
      for (int cell = 0; cell < CELLS; cell++) {
        addCell(database, duel, cell);
      }
    }
  }

  private static void addCell(Connection database, int duel, int cell) throws SQLException {
    int across = cell / SIDE;
    int down = cell % SIDE;
    int box = across / BOX * BOX + down / BOX;
    // each line is the one above it, moved by a box; each box of lines is moved by one more cell
    int solution = (BOX * (across % BOX) + across / BOX + down + duel) % SIDE + 1;
    int given = (cell * 5 + duel) % 8 < 3 ? 1 : 0;
    Sql.change(
        database,
        "insert into duel_cells values(?, ?, ?, ?, ?, ?, ?, ?)",
        duel,
        cell,
        across,
        down,
        box,
        given,
        solution,
        given * solution);
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        new Operation("board", 45, false, Arguments.below(DUELS), SuDuelKu::board),
        new Operation("ranking", 15, false, Arguments.below(DUELS), SuDuelKu::ranking),
        new Operation("champions", 5, false, Arguments.below(), SuDuelKu::champions),
        new Operation("mine", 5, false, Arguments.below(), SuDuelKu::mine),
        // a player finds the right digit in three of four guesses
        new Operation(
            "guess",
            26,
            true,
            random ->
                new long[] {
                  random.nextInt(CELLS), random.nextInt(4) > 0 ? 0 : random.nextInt(SIDE)
                },
            SuDuelKu::guess),
        new Operation("sit", 4, true, Arguments.below(DUELS), SuDuelKu::sit));
  }

  private static int duel(long[] arguments) {
    return 1 + Arguments.within(arguments[0], DUELS);
  }

  private static String board(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    StringBuilder digits = new StringBuilder(CELLS);
    String query = "select digit from duel_cells where duel = ? order by cell";
    for (long[] row : Sql.rows(database, query, duel(arguments))) {
      digits.append(row[0]);
    }
    return digits.toString();
  }

  private static String ranking(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select member, score from duel_chairs where game = ? and member is not null"
            + " order by score desc, chair",
        duel(arguments));
  }

  private static String champions(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(database, "select member, wins from duelists order by wins desc limit 5");
  }

  private static String mine(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(database, "select wins, writes from duelists where member = ?", member);
  }

  private static String sit(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int duel = duel(arguments);
    long chair = CHAIRS.take(database, member, duel);
    Sql.change(
        database,
        "update duel_chairs set score = 0 where game = ? and chair = ?",
        duel,
        chair);
    MEMBERS.record(database, member, number, duel, null, null, null, "seated");
    return "chair " + chair + " of duel " + duel;
  }

  /** Guesses the digit of a cell. The second argument says by how much the digit is wrong. */
  private static String guess(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long duel = CHAIRS.lockGame(database, member);
    int cell = Arguments.within(arguments[0], CELLS);
    long[] state =
        Sql.row(
                database,
                "select d.turn, d.filled, c.solution, c.digit, d.id from duels d"
                    + " join duel_cells c on c.duel = d.id where d.id = ? and c.cell = ?",
                duel,
                cell)
            .orElse(new long[5]);
    long solution = state[2];
    long digit = Arguments.within(solution - 1 + Arguments.within(arguments[1], SIDE), SIDE) + 1;
    String outcome =
        duel == 0 ? "no chair" : state[3] > 0 ? "taken" : digit == solution ? "right" : "wrong";
    if (outcome.equals("right") || outcome.equals("wrong")) {
      Sql.change(
          database,
          "update duel_chairs set score = score + ? where game = ? and member = ?",
          outcome.equals("right") ? 1 : -1,
          duel,
          member);
    }
    if (outcome.equals("right")) {
      write(database, duel, cell, digit);
    }
    MEMBERS.record(database, member, number, duel, state[0], cell, digit, outcome);
    return outcome + " " + digit + " in cell " + cell + " of duel " + duel;
  }

  private static void write(Connection database, long duel, int cell, long digit)
      throws SQLException {
    Sql.change(
        database,
        "update duel_cells set digit = ? where duel = ? and cell = ?",
        digit,
        duel,
        cell);
    Sql.change(database, "update duels set filled = filled + 1 where id = ?", duel);
    String empty = "select cell from duel_cells where duel = ? and digit = 0 limit 1";
    if (Sql.row(database, empty, duel).isEmpty()) {
      next(database, duel);
    }
  }

  /** Ends a turn of a duel: counts it for the winner, and begins another sudoku. */
  private static void next(Connection database, long duel) throws SQLException {
    long winner =
        Sql.number(
            database,
            "select member from duel_chairs where game = ? and member is not null"
                + " order by score desc, chair limit 1",
            duel);
    Sql.change(database, "update duelists set wins = wins + 1 where member = ?", winner);
    Sql.change(database, "update duel_chairs set score = 0 where game = ?", duel);
    Sql.change(database, "update duels set turn = turn + 1, filled = 0 where id = ?", duel);
    // MariaDB assigns from left to right: the digit needs the solution before it changes
    Sql.change(
        database,
        "update duel_cells set digit = given * (mod(solution, 9) + 1),"
            + " solution = mod(solution, 9) + 1 where duel = ?",
        duel);
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
            "duel_cells: duel %s has the digit %s in the cells %s and %s",
            "select a.duel, a.digit, a.cell, b.cell from duel_cells a join duel_cells b"
                + " on b.duel = a.duel and b.cell > a.cell and b.digit = a.digit"
                + " where a.digit > 0"
                + " and (a.across = b.across or a.down = b.down or a.box = b.box)"),
        new Check(
            "duels: %s counts %s filled cells, but has %s",
            "select d.id, d.filled, count(c.cell) from duels d left join duel_cells c"
                + " on c.duel = d.id and c.given = 0 and c.digit > 0 group by d.id, d.filled"
                + " having d.filled <> count(c.cell)"),
        new Check(
            "duels: %s counts %s filled cells, but has %s right guesses",
            "select d.id, d.filled, count(g.id) from duels d left join guesses g"
                + " on g.duel = d.id and g.turn = d.turn and g.outcome = 'right'"
                + " group by d.id, d.filled having d.filled <> count(g.id)"),
        new Check(
            "duelists: %s wins in %s duels that ended",
            "select wins, turns from (select sum(wins) as wins from duelists) w"
                + " cross join (select sum(turn) as turns from duels) d where wins <> turns"));
  }
}
