package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"

	"github.com/anishathalye/porcupine"
)

// never is the return time of a call without an answer.
const never = math.MaxInt64

// owner is the history of one process: one owner of a session, under one epoch.
type owner struct {
	path    string
	session string
	epoch   uint64
	// The time at which its opening returned: operations of earlier owners happened before.
	openedNs int64
	calls    []*call
}

// call is a call of an owner, with its outcome.
type call struct {
	key        string
	ask        ask
	calledNs   int64
	returnedNs int64
	outcome    string
	answer     answer
	// The owner was notified that earlier owners' last writes may be lost.
	tailUnknown bool
}

// line is any line of a history.
type line struct {
	Line    string `json:"line"`
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
	Call    uint64 `json:"call"`
	Key     string `json:"key"`
	Outcome string `json:"outcome"`
	Tail    bool   `json:"is_tail_unknown"`
	AtNs    int64  `json:"at_ns"`
}

var kinds = map[string]bool{
	"get": true, "set": true, "delete": true, "increment": true, "append": true, "compare_and_set": true,
}

var outcomes = map[string]bool{"done": true, "unknown": true, "lost": true, "refused": true}

// reader holds the state of reading a history.
type reader struct {
	path    string
	owner   *owner
	pending map[uint64]*call
}

// readOwner reads a history; nil when its process ended before it had opened the session.
func readOwner(path string) (*owner, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rows := bytes.Split(content, []byte("\n"))
	// A killed process may leave an unfinished line at the end: that call was not made.
	rows = rows[:len(rows)-1]
	it := reader{path: path, pending: map[uint64]*call{}}
	for at, row := range rows {
		if err := it.take(row); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, at+1, err)
		}
	}
	return it.owner, nil
}

func (r *reader) take(row []byte) error {
	var read line
	if err := json.Unmarshal(row, &read); err != nil {
		return fmt.Errorf("it is no line of a history (%w); wanted a JSON object", err)
	}
	if (read.Line == "opened") != (r.owner == nil) {
		return fmt.Errorf("line is %q; wanted one \"opened\", and that first", read.Line)
	}
	switch read.Line {
	case "opened":
		r.owner = &owner{path: r.path, session: read.Session, epoch: read.Epoch, openedNs: read.AtNs}
	case "called":
		made := &call{key: read.Key, calledNs: read.AtNs, returnedNs: never, outcome: "unknown"}
		if err := json.Unmarshal(row, &made.ask); err != nil || !kinds[made.ask.Kind] {
			return fmt.Errorf("ask is %q; wanted one that the model knows", made.ask.Kind)
		}
		r.pending[read.Call] = made
		r.owner.calls = append(r.owner.calls, made)
	case "returned":
		return r.returned(row, read)
	case "ended":
	default:
		return fmt.Errorf("line is %q; wanted opened, called, returned or ended", read.Line)
	}
	return nil
}

func (r *reader) returned(row []byte, read line) error {
	made := r.pending[read.Call]
	if made == nil || !outcomes[read.Outcome] {
		return fmt.Errorf("call %d came to %q; wanted a known outcome of a call under way", read.Call, read.Outcome)
	}
	delete(r.pending, read.Call)
	made.outcome, made.tailUnknown = read.Outcome, read.Tail
	if read.Outcome != "unknown" {
		made.returnedNs = read.AtNs
	}
	return json.Unmarshal(row, &made.answer)
}

// keyHistory has the operations on one key of one session, for Porcupine.
type keyHistory struct {
	session, key string
	lossy        bool
	operations   []porcupine.Operation
}

// partition turns owners into histories of keys. A violation that shows without a search is an
// error: an epoch that was given out twice, and an answer to a call that a fenced owner made after the
// next one had opened the session.
func partition(owners []*owner) ([]*keyHistory, error) {
	sessions := map[string][]*owner{}
	for _, it := range owners {
		sessions[it.session] = append(sessions[it.session], it)
	}
	var histories []*keyHistory
	for session, its := range sessions {
		sort.Slice(its, func(a, b int) bool { return its[a].epoch < its[b].epoch })
		byKey := map[string]*keyHistory{}
		fencedNs := int64(never)
		for at := len(its) - 1; at >= 0; at-- {
			if at > 0 && its[at].epoch == its[at-1].epoch {
				return nil, fmt.Errorf("%s and %s: both own session %s under epoch %d; wanted an epoch for each",
					its[at-1].path, its[at].path, session, its[at].epoch)
			}
			for _, made := range its[at].calls {
				if byKey[made.key] == nil {
					byKey[made.key] = &keyHistory{session: session, key: made.key}
				}
				if err := byKey[made.key].add(made, its[at], fencedNs); err != nil {
					return nil, err
				}
			}
			// The owner before this one is fenced when this one is open.
			if its[at].openedNs < fencedNs {
				fencedNs = its[at].openedNs
			}
		}
		for _, it := range byKey {
			it.markLossy()
			histories = append(histories, it)
		}
	}
	sort.Slice(histories, func(a, b int) bool {
		one, other := histories[a], histories[b]
		return one.session+"/"+one.key < other.session+"/"+other.key
	})
	return histories, nil
}

// add adds a call, and the loss that its answer reported. Once the next owner has opened the session,
// no operation of an earlier one happens any more.
func (h *keyHistory) add(made *call, by *owner, fencedNs int64) error {
	if made.outcome == "done" && made.calledNs > fencedNs {
		return fmt.Errorf("%s: a call on key %s at %d ns was answered; wanted none, since a later owner had opened session %s at %d ns",
			by.path, made.key, made.calledNs, by.session, fencedNs)
	}
	until := made.returnedNs
	if until > fencedNs {
		until = fencedNs
	}
	entry := porcupine.Operation{
		ClientId: int(by.epoch),
		Input:    input{ask: made.ask},
		Output:   made.answer,
		Call:     made.calledNs,
		Return:   until,
	}
	switch {
	case made.outcome == "done":
		h.operations = append(h.operations, entry)
		if made.tailUnknown {
			h.addTail(made, by, until)
		}
	case made.outcome == "lost":
		h.addLoss(by, made.calledNs, made.returnedNs)
	// A call that did not happen, or changed nothing, or came from a fenced owner.
	case made.outcome == "refused" || made.ask.Kind == "get" || made.calledNs > fencedNs:
	default:
		entry.Input = input{ask: made.ask, certainty: open}
		h.operations = append(h.operations, entry)
	}
	return nil
}

// addTail adds the loss behind an answer that reported an unknown tail. A key is taken over before
// anything else of its owner happens on it, so the loss was there when the owner opened the session. If
// the owner had answers on the key before this call, the loss came after them: they reported none.
func (h *keyHistory) addTail(made *call, by *owner, until int64) {
	fromNs, toNs := by.openedNs+1, by.openedNs+1
	for _, earlier := range by.calls {
		if earlier.key == made.key && earlier.outcome == "done" && earlier.returnedNs < made.calledNs {
			toNs = until
			if earlier.returnedNs >= fromNs {
				fromNs = earlier.returnedNs + 1
			}
		}
	}
	h.addLoss(by, fromNs, toNs)
}

func (h *keyHistory) addLoss(by *owner, fromNs, toNs int64) {
	h.operations = append(h.operations, porcupine.Operation{
		ClientId: int(by.epoch), Input: input{certainty: loss}, Output: answer{}, Call: fromNs, Return: toNs,
	})
}

func (h *keyHistory) markLossy() {
	for _, it := range h.operations {
		h.lossy = h.lossy || it.Input.(input).certainty == loss
	}
	for at := range h.operations {
		marked := h.operations[at].Input.(input)
		marked.lossy = h.lossy
		h.operations[at].Input = marked
	}
}
