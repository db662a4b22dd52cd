package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script is a history as a process would write it.
type script struct {
	text   strings.Builder
	number int
}

func opened(epoch, atNs int) *script {
	s := &script{}
	fmt.Fprintf(&s.text, `{"line":"opened","session":"s","epoch":%d,"at_ns":%d}`+"\n", epoch, atNs)
	return s
}

// key is the key of all calls.
const key = "k"

// call adds a call from `calledNs` to `returnedNs`; without an outcome its process was killed.
func (s *script) call(calledNs, returnedNs int, ask, outcome string) *script {
	s.number++
	fmt.Fprintf(&s.text, `{"line":"called","call":%d,"key":%q,"level":"first",%s,"at_ns":%d}`+"\n",
		s.number, key, ask, calledNs)
	if outcome != "" {
		fmt.Fprintf(&s.text, `{"line":"returned","call":%d,%s,"at_ns":%d}`+"\n",
			s.number, outcome, returnedNs)
	}
	return s
}

const (
	get      = `"ask":"get"`
	setA     = `"ask":"set","value":"a"`
	setB     = `"ask":"set","value":"b"`
	addOne   = `"ask":"increment","by":1`
	swapAToB = `"ask":"compare_and_set","expected":"a","value":"b"`
	addNone  = `"ask":"compare_and_set","expected":null,"value":"b"`
	appendA  = `"ask":"append","value":"a"`
	remove   = `"ask":"delete"`

	stored    = `"outcome":"done","answer":"stored","is_tail_unknown":false`
	notStored = `"outcome":"done","answer":"not_stored","is_tail_unknown":false`
	none      = `"outcome":"done","answer":"not_found","is_tail_unknown":false`
	noneTail  = `"outcome":"done","answer":"not_found","is_tail_unknown":true`
	unknown   = `"outcome":"unknown","why":"no answer"`
	refused   = `"outcome":"refused","why":"no key"`
	lost      = `"outcome":"lost","why":"data loss"`
)

func text(value string) string {
	return fmt.Sprintf(`"outcome":"done","answer":"value","value":%q,"is_tail_unknown":false`, value)
}

func textTail(value string) string {
	return strings.Replace(text(value), "false", "true", 1)
}

func number(n int) string {
	return fmt.Sprintf(`"outcome":"done","answer":"number","number":%d,"is_tail_unknown":false`, n)
}

// judge writes the histories down and checks them.
func judge(t *testing.T, timeout time.Duration, scripts ...*script) (int, string, string) {
	t.Helper()
	directory := t.TempDir()
	for at, it := range scripts {
		path := filepath.Join(directory, fmt.Sprintf("owner-%d.jsonl", at))
		if err := os.WriteFile(path, []byte(it.text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	return check(directory, timeout, &out), out.String(), directory
}

func TestGoodHistoriesAreAccepted(t *testing.T) {
	cases := map[string][]*script{
		"every kind of call in turn": {opened(1, 0).
			call(1, 2, get, none).call(3, 4, setA, stored).call(5, 6, get, text("a")).
			call(7, 8, swapAToB, stored).call(9, 10, swapAToB, notStored).call(11, 12, appendA, number(2)).
			call(13, 14, get, text("ba")).call(15, 16, addOne, `"outcome":"done","answer":"not_a_number"`).
			call(17, 18, remove, number(1)).call(19, 20, remove, number(0)).call(21, 22, addOne, number(1)).
			call(23, 24, addOne, number(2)).call(25, 26, get, text("2"))},
		"two writes at once, in either order": {opened(1, 0).
			call(1, 10, setA, stored).call(2, 9, setB, stored).call(11, 12, get, text("a"))},
		"an unknown write that shows late": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 4, setB, unknown).call(5, 6, get, text("a")).
			call(7, 8, get, text("b"))},
		"an unknown write that never happened": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 4, addOne, unknown).call(5, 6, get, text("a"))},
		"a write whose owner was killed before the answer": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 0, setB, ""),
			opened(2, 10).call(11, 12, get, text("b")).call(13, 14, get, text("b"))},
		"a refused call did not happen": {opened(1, 0).
			call(1, 2, setA, refused).call(3, 4, get, none)},
		"an owner that was fenced while its answer was on its way": {
			opened(1, 0).call(1, 30, setA, stored),
			opened(2, 10).call(11, 12, get, text("a"))},
		"a loss that was reported to the owner": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, setB, stored).call(5, 6, get, lost),
			opened(2, 10).call(11, 12, get, text("a"))},
		"a lost tail that was reported to the next owner": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, setB, stored),
			opened(2, 10).call(11, 12, addNone, unknown).call(13, 14, get, noneTail)},
		"a tail that is lost, and reported, while the session is open": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, setB, stored),
			opened(2, 10).call(11, 12, get, text("b")).call(13, 14, get, textTail("a"))},
		"an update without an answer, on the value that a loss had left": {
			opened(1, 0).call(1, 2, addOne, number(1)).call(3, 4, addOne, number(2)).
				call(5, 6, `"ask":"increment","by":5`, number(7)),
			opened(2, 10).call(11, 12, addOne, unknown).call(13, 14, get, textTail("3"))},
	}
	for name, scripts := range cases {
		t.Run(name, func(t *testing.T) {
			code, said, _ := judge(t, time.Minute, scripts...)
			if code != exitAccepted {
				t.Errorf("rejected:\n%s", said)
			}
		})
	}
}

func TestBadHistoriesAreRejectedAndDrawn(t *testing.T) {
	cases := map[string][]*script{
		"a stale read": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 4, setB, stored).call(5, 6, get, text("a"))},
		"a read that goes back": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 20, setB, stored).call(4, 5, get, text("b")).
			call(6, 7, get, text("a"))},
		"an acknowledged write that is lost in silence": {
			opened(1, 0).call(1, 2, setA, stored),
			opened(2, 10).call(11, 12, get, none)},
		"an increment that happened twice": {opened(1, 0).
			call(1, 2, addOne, number(1)).call(3, 4, addOne, unknown).call(5, 6, get, text("3"))},
		"an increment that was answered and not done": {opened(1, 0).
			call(1, 2, addOne, number(1)).call(3, 4, addOne, number(2)).call(5, 6, addOne, number(2))},
		"a write that shows before its call": {opened(1, 0).
			call(1, 2, get, text("a")).call(3, 4, setA, stored)},
		"a value that nobody wrote": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 4, get, text("c"))},
		"a refused write shows": {opened(1, 0).
			call(1, 2, setA, refused).call(3, 4, get, text("a"))},
		"a write of a fenced owner that happens after the next has opened": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, setB, unknown),
			opened(2, 10).call(11, 12, get, text("a")).call(13, 14, get, text("b"))},
		"a reported loss leaves a value that never was": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, get, lost),
			opened(2, 10).call(11, 12, get, text("c"))},
		"a lost tail that is reported after an answer that hid it": {
			opened(1, 0).call(1, 2, setA, stored).call(3, 4, setB, stored),
			opened(2, 10).call(11, 12, get, text("a")).call(13, 14, get, textTail("a"))},
		"a lost tail that leaves a value that never was": {
			opened(1, 0).call(1, 2, setA, stored),
			opened(2, 10).call(11, 12, get, textTail("c"))},
		"a comparison that held against another value": {opened(1, 0).
			call(1, 2, setB, stored).call(3, 4, swapAToB, stored)},
		"a deletion that did not last": {opened(1, 0).
			call(1, 2, setA, stored).call(3, 4, remove, number(1)).call(5, 6, get, text("a"))},
	}
	for name, scripts := range cases {
		t.Run(name, func(t *testing.T) {
			code, said, directory := judge(t, time.Minute, scripts...)
			if code != exitRejected || !strings.Contains(said, "violation: no order") {
				t.Errorf("accepted:\n%s", said)
			}
			page, err := os.ReadFile(filepath.Join(directory, "violation-s-k.html"))
			if err != nil || !bytes.Contains(page, []byte("<html")) {
				t.Errorf("no page: %v", err)
			}
		})
	}
}

func TestAnAnswerToAFencedOwnersLaterCallIsAViolation(t *testing.T) {
	code, said, _ := judge(t, time.Minute,
		opened(1, 0).call(20, 21, get, none),
		opened(2, 10))
	if code != exitRejected || !strings.Contains(said, "a later owner had opened session s at 10 ns") {
		t.Errorf("%d:\n%s", code, said)
	}
}

func TestAnEpochThatWasGivenOutTwiceIsAViolation(t *testing.T) {
	code, said, _ := judge(t, time.Minute, opened(1, 0), opened(1, 10))
	if code != exitRejected || !strings.Contains(said, "under epoch 1") {
		t.Errorf("%d:\n%s", code, said)
	}
}

func TestALineThatAKilledProcessDidNotFinishIsNoCall(t *testing.T) {
	torn := opened(1, 0).call(1, 2, setA, stored)
	torn.text.WriteString(`{"line":"called","call":2,"key":"k","ask":"se`)
	code, said, _ := judge(t, time.Minute, torn, opened(2, 10).call(11, 12, get, text("a")))
	if code != exitAccepted || !strings.Contains(said, "1 done (0 with a tail unknown), 0 unknown") {
		t.Errorf("%d:\n%s", code, said)
	}
}

func TestAMalformedHistoryIsAnErrorWithItsPlace(t *testing.T) {
	cases := map[string]string{
		"{\n":                               "owner-0.jsonl:1: it is no line",
		`{"line":"called","call":1}` + "\n": `wanted one "opened"`,
		opened(1, 0).call(1, 2, `"ask":"rename"`, "").text.String():                                   `ask is "rename"`,
		opened(1, 0).call(1, 2, get, `"outcome":"perhaps"`).text.String():                             `came to "perhaps"`,
		opened(1, 0).text.String() + `{"line":"returned","call":9,"outcome":"done","at_ns":1}` + "\n": "call 9",
		opened(1, 0).text.String() + `{"line":"paused"}` + "\n":                                       `line is "paused"`,
	}
	for content, wanted := range cases {
		it := &script{}
		it.text.WriteString(content)
		code, said, _ := judge(t, time.Minute, it)
		if code != exitError || !strings.Contains(said, wanted) {
			t.Errorf("%q: %d, wanted %q:\n%s", content, code, wanted, said)
		}
	}
	if code, said, _ := judge(t, time.Minute); code != exitError || !strings.Contains(said, "no *.jsonl") {
		t.Errorf("%d:\n%s", code, said)
	}
}

// Only the last read shows the order of the appends, and it fits none: all orders would be tried.
func TestASearchThatTakesTooLongIsNoVerdictAndNotAccepted(t *testing.T) {
	hard := opened(1, 0)
	for at := 0; at < 26; at++ {
		hard.call(1, 100, fmt.Sprintf(`"ask":"append","value":"%c"`, 'a'+at), unknown)
	}
	hard.call(101, 102, get, text("never"))
	code, said, _ := judge(t, time.Millisecond, hard)
	if code != exitRejected || !strings.Contains(said, "not decided within the time that was left (1ms)") {
		t.Errorf("%d:\n%s", code, said)
	}
}
