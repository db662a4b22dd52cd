package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// value is the value of a key.
type value struct {
	text    string
	present bool
}

// state holds the possible values of a key now and, for a key with a reported loss, all possible values
// that it had. Porcupine's own NondeterministicModel would keep a past for each
// value, and states that differ in nothing else would never merge again.
type state struct {
	now    []value
	before *past
	// The sum of hashes of the present values, so that different states are found without a walk.
	sum uint64
}

func (s *state) add(possible value) {
	for _, known := range s.now {
		if known == possible {
			return
		}
	}
	s.now = append(s.now, possible)
	s.sum += hash(possible)
}

// past is a set of values, shared between the states that follow each other.
type past struct {
	value   value
	hash    uint64
	earlier *past
	// The sum of hashes of all members.
	sum uint64
}

func (p *past) with(added value) *past {
	own := hash(added)
	for member := p; member != nil; member = member.earlier {
		if member.hash == own && member.value == added {
			return p
		}
	}
	sum := own
	if p != nil {
		sum += p.sum
	}
	return &past{value: added, hash: own, earlier: p, sum: sum}
}

// hash is FNV-1a of a value.
func hash(v value) uint64 {
	sum := uint64(14695981039346656037)
	if v.present {
		sum ^= 1
	}
	for i := 0; i < len(v.text); i++ {
		sum = (sum ^ uint64(v.text[i])) * 1099511628211
	}
	return sum | 1
}

// ask is the operation of a call.
type ask struct {
	Kind     string  `json:"ask"`
	Value    string  `json:"value"`
	Expected *string `json:"expected"`
	By       int64   `json:"by"`
}

// answer is the answer of a call.
type answer struct {
	Kind   string `json:"answer"`
	Value  string `json:"value"`
	Number int64  `json:"number"`
}

// certainty is the degree of knowledge about a call.
type certainty int

const (
	// answered: it happened, with this answer.
	answered certainty = iota
	// open: it happened at most once, and its answer is not known.
	open
	// loss: no call, but a reported loss. The key may go back to any value that it had.
	loss
)

// input is a call for the model.
type input struct {
	ask       ask
	certainty certainty
	// The history needs the values of the past, since a loss of this key was reported.
	lossy bool
}

// execute is the sequential specification: the key-value machine, written a second time.
func execute(was value, asked ask) (value, answer) {
	switch asked.Kind {
	case "get":
		if !was.present {
			return was, answer{Kind: "not_found"}
		}
		return was, answer{Kind: "value", Value: was.text}
	case "set":
		return value{asked.Value, true}, answer{Kind: "stored"}
	case "delete":
		if was.present {
			return value{}, answer{Kind: "number", Number: 1}
		}
		return value{}, answer{Kind: "number", Number: 0}
	case "increment":
		return increment(was, asked.By)
	case "append":
		text := was.text + asked.Value
		return value{text, true}, answer{Kind: "number", Number: int64(len(text))}
	case "compare_and_set":
		holds := was.present == (asked.Expected != nil) && (!was.present || was.text == *asked.Expected)
		if !holds {
			return was, answer{Kind: "not_stored"}
		}
		return value{asked.Value, true}, answer{Kind: "stored"}
	}
	panic("a kind that the reader lets through: " + asked.Kind)
}

func increment(was value, by int64) (value, answer) {
	number := int64(0)
	if was.present {
		read, err := strconv.ParseInt(was.text, 10, 64)
		if err != nil {
			return was, answer{Kind: "not_a_number"}
		}
		number = read
	}
	if (by > 0 && number > math.MaxInt64-by) || (by < 0 && number < math.MinInt64-by) {
		return was, answer{Kind: "out_of_range"}
	}
	number += by
	return value{strconv.FormatInt(number, 10), true}, answer{Kind: "number", Number: number}
}

// step applies a call to every possible value, and returns whether it fits any, with the values after it.
func step(was state, in input, out answer) (bool, state) {
	after := state{before: was.before}
	if in.certainty != answered {
		// It may not have happened, or nothing may have been lost.
		after.now = append(after.now, was.now...)
		after.sum = was.sum
	}
	if in.certainty == loss {
		for member := was.before; member != nil; member = member.earlier {
			after.add(member.value)
		}
		return true, after
	}
	for _, possible := range was.now {
		now, said := execute(possible, in.ask)
		if in.certainty == answered && said != out {
			continue
		}
		after.add(now)
		if in.lossy {
			after.before = after.before.with(now)
		}
	}
	return len(after.now) > 0, after
}

func equal(one, other state) bool {
	if len(one.now) != len(other.now) || one.sum != other.sum || one.before.total() != other.before.total() {
		return false
	}
	union := state{now: append([]value{}, one.now...)}
	for _, possible := range other.now {
		union.add(possible)
	}
	return len(union.now) == len(one.now)
}

func (p *past) total() uint64 {
	if p == nil {
		return 0
	}
	return p.sum
}

// keyModel models a key of a session, which begins without a value.
func keyModel(lossy bool) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} {
			first := state{}
			first.add(value{})
			if lossy {
				first.before = first.before.with(value{})
			}
			return first
		},
		Step: func(was, in, out interface{}) (bool, interface{}) {
			return step(was.(state), in.(input), out.(answer))
		},
		Equal: func(one, other interface{}) bool {
			return equal(one.(state), other.(state))
		},
		Hash: func(s interface{}) uint64 {
			return s.(state).sum + s.(state).before.total()
		},
		DescribeOperation: func(in, out interface{}) string {
			return describe(in.(input), out.(answer))
		},
		DescribeState: func(s interface{}) string {
			return fmt.Sprint(s.(state).now)
		},
	}
}

func (v value) String() string {
	if !v.present {
		return "nothing"
	}
	return strconv.Quote(v.text)
}

func describe(in input, out answer) string {
	if in.certainty == loss {
		return "a reported loss"
	}
	asked := in.ask.Kind
	switch asked {
	case "set", "append":
		asked += " " + strconv.Quote(in.ask.Value)
	case "increment":
		asked += fmt.Sprintf(" %+d", in.ask.By)
	case "compare_and_set":
		expected := "nothing"
		if in.ask.Expected != nil {
			expected = strconv.Quote(*in.ask.Expected)
		}
		asked += " " + expected + " to " + strconv.Quote(in.ask.Value)
	}
	if in.certainty == open {
		return asked + ": unknown"
	}
	switch out.Kind {
	case "value":
		return asked + ": " + strconv.Quote(out.Value)
	case "number":
		return fmt.Sprintf("%s: %d", asked, out.Number)
	}
	return asked + ": " + out.Kind
}
