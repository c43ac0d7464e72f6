package history

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verb is what a client does to an object.
type Verb string

// Verbs of locks (an exclusive consumer of a queue) and of names (a queue that is
// there or not).
const (
	Acquire Verb = "acquire"
	Release Verb = "release"
	Prove   Verb = "prove" // an answer to the holder over the connection that holds
	Drop    Verb = "drop"  // the holder's connection has gone

	Declare Verb = "declare"
	Delete  Verb = "delete"
	Look    Verb = "look"
)

// Answer is what came of it.
type Answer string

// Answers. No answer is NoAnswer: done or not.
const (
	Done     Answer = "done"
	Denied   Answer = "denied" // of Acquire: somebody has it; of Look: it is not there
	NoAnswer Answer = "no answer"
)

// lasting is how long after its begin something without an answer may still take
// effect: longer than any connection or leader that is gone for its client can live.
const lasting = 15 * time.Second

// Objects is a history of operations on named objects, which must be linearizable:
// each operation takes effect at one moment between its begin and its end. For locks
// that is fencing: whoever got an answer as the holder was the holder, so nobody
// hears so after somebody else has it. Its methods may be called concurrently.
type Objects struct {
	begin time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// NewObjects returns an empty history.
func NewObjects() *Objects { return &Objects{begin: time.Now()} }

// action is the input of an operation.
type action struct {
	object, who string
	verb        Verb
}

// Begin notes that a client begins something; the function returned notes the
// answer, once. who is a client during one connection.
func (o *Objects) Begin(object, who string, v Verb) func(Answer) {
	call := time.Since(o.begin)
	return func(a Answer) { o.add(action{object, who, v}, a, call, time.Since(o.begin)) }
}

// Gone notes that a client's connection, which held or asked for an object, has
// ended at some time since it was last known to live.
func (o *Objects) Gone(object, who string, lived time.Time) {
	o.add(action{object, who, Drop}, NoAnswer, lived.Sub(o.begin), time.Since(o.begin))
}

func (o *Objects) add(in action, out Answer, call, end time.Duration) {
	if out == NoAnswer {
		end += lasting
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops = append(o.ops, porcupine.Operation{Input: in, Output: out, Call: int64(call), Return: int64(end)})
}

// Len returns the number of operations.
func (o *Objects) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ops)
}

// Check reports the objects whose history no order of operations explains.
// Undecided says that the time was too short to know of some.
func (o *Objects) Check(timeout time.Duration) (wrong []string, undecided bool) {
	o.mu.Lock()
	ops := append([]porcupine.Operation(nil), o.ops...)
	o.mu.Unlock()
	byObject := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := op.Input.(action).object
		byObject[name] = append(byObject[name], op)
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			return next(state.(string), input.(action), output.(Answer))
		},
	}).ToModel()
	for name, ops := range byObject {
		switch porcupine.CheckOperationsTimeout(model, ops, timeout/time.Duration(len(byObject))) {
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("%s: %d operations that no order explains", name, len(ops)))
		case porcupine.Unknown:
			undecided = true
		}
	}
	return wrong, undecided
}

// there is the state of a name that exists; of a lock, the state is its holder.
const there = "there"

// next returns the states that an operation with this answer may lead to: none if
// it cannot have had this answer.
func next(state string, a action, answer Answer) []any {
	set := func(to string) []any {
		if answer == NoAnswer {
			return []any{state, to}
		}
		return []any{to}
	}
	only := func(possible bool) []any {
		if possible || answer == NoAnswer {
			return []any{state}
		}
		return nil
	}
	switch a.verb {
	case Acquire:
		if answer == Denied {
			return only(state != "")
		}
		if state != "" {
			return only(false)
		}
		return set(a.who)
	case Release:
		if state != a.who {
			return only(false)
		}
		return set("")
	case Prove:
		return only(state == a.who)
	case Drop:
		if state == a.who {
			return []any{""}
		}
		return []any{state}
	case Declare:
		return set(there)
	case Delete:
		return set("")
	default:
		return only((state == there) == (answer == Done))
	}
}
