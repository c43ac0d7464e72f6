package retain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
)

func value(expires int64, text string) []byte {
	r := kernel.Record{Value: []byte(text)}
	if expires != 0 {
		r.Headers = []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: fmt.Append(nil, expires)}}
	}
	return Append(nil, &r)
}

func TestMessageComesBack(t *testing.T) {
	for _, r := range []kernel.Record{
		{Headers: []kernel.Header{}},
		{Key: []byte{}, Value: []byte{}, Timestamp: 5, Headers: []kernel.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("x")}}},
		{Key: []byte("k"), Value: []byte("v"), Timestamp: -1, Headers: []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: []byte("17")}}},
	} {
		b := Append(nil, &r)
		got, err := Read(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		if expiry(b) != ExpiresAt(&r) {
			t.Errorf("expiry %d of %+v", expiry(b), r)
		}
		for n := range len(b) {
			if _, err := Read(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are accepted", n, len(b))
			}
		}
		b[0]++
		if _, err := Read(b); err == nil {
			t.Error("another version is accepted")
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(value(7, "text"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := Read(b); err == nil {
			if again, err := Read(Append(nil, &r)); err != nil || len(again.Headers) != len(r.Headers) {
				t.Errorf("%+v, %v", again, err)
			}
		}
	})
}

// matchPlain says level by level whether a filter matches a name (MQTT 5.0, 4.7).
func matchPlain(filter, name string) bool {
	f, n := strings.Split(filter, "/"), strings.Split(name, "/")
	if strings.HasPrefix(name, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i >= len(n) || level != "+" && level != n[i] {
			return false
		}
	}
	return len(f) == len(n)
}

func find(x *Index, filter string, page int) (names []string) {
	f, from := NewFilter(filter), ""
	for {
		found, next, more := x.Page(f, from, page, nil)
		for i := range found {
			names = append(names, found[i].Name)
		}
		if !more {
			return names
		}
		from = next
	}
}

func TestIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model := NewIndex(NewBudget(200)), map[string][]byte{}
		word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a-", "a\x01", "$x", "zz"})
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, "words"), "/")
		}).Filter(func(s string) bool { return s != "" })
		level := rapid.SampledFrom([]string{"", "a", "b", "+", "+", "a-", "$x"})
		var index uint64
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			index++
			n := name.Draw(t, "name")
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				x.Delete(n, math.MaxUint64)
				delete(model, n)
				continue
			}
			model[n] = value(0, strings.Repeat("x", rapid.IntRange(0, 20).Draw(t, "size")))
			x.Put(n, model[n], index)
		}
		var bytes int64
		for n, v := range model {
			bytes += int64(len(n) + len(v))
		}
		if x.Len() != len(model) || x.Bytes() != bytes {
			t.Fatalf("%d topics of %d bytes, want %d of %d", x.Len(), x.Bytes(), len(model), bytes)
		}
		for range 10 {
			levels := rapid.SliceOfN(level, 1, 4).Draw(t, "levels")
			if rapid.Bool().Draw(t, "rest") {
				levels = append(levels, "#")
			}
			filter := strings.Join(levels, "/")
			var want []string
			for n := range model {
				if matchPlain(filter, n) {
					want = append(want, n)
				}
			}
			slices.SortFunc(want, compare)
			if got := find(x, filter, rapid.IntRange(1, 9).Draw(t, "page")); !slices.Equal(got, want) {
				t.Fatalf("%q matches %q, want %q", filter, got, want)
			}
		}
		for n := range model {
			x.Delete(n, math.MaxUint64)
		}
		if x.Len() != 0 || x.Bytes() != 0 || x.budget.left.Load() != 200 {
			t.Fatalf("left over: %d topics, %d bytes, %d of the budget", x.Len(), x.Bytes(), x.budget.left.Load())
		}
	})
}

// A page of a filter that matches little ends, so that writers get their turn.
func TestPageLooksAtFewNames(t *testing.T) {
	x := NewIndex(NewBudget(0))
	const n = 3*maxLook + 7
	for i := range n {
		x.Put(fmt.Sprintf("%06d/x", i), value(0, ""), 1)
	}
	f := NewFilter("+")
	pages, from, more := 0, "", true
	for more {
		var found []Found
		found, from, more = x.Page(f, from, 10, nil)
		if pages++; len(found) > 0 {
			t.Fatal(found)
		}
	}
	if pages < 2 {
		t.Errorf("%d pages", pages)
	}
}

func TestExpire(t *testing.T) {
	x := NewIndex(NewBudget(1 << 20))
	x.Put("a", value(10, "1"), 1)
	x.Put("b", value(20, "1"), 2)
	x.Put("c", value(10, "1"), 3)
	x.Put("c", value(0, "for ever"), 4)
	x.Put("d", value(30, "1"), 5)
	if list, wait := x.Expire(9, 10); len(list) != 0 || wait != 10 {
		t.Error(list, wait)
	}
	list, wait := x.Expire(20, 10)
	if want := []Expired{{"a", 1}, {"b", 2}}; !slices.Equal(list, want) || wait != 30 {
		t.Error(list, wait)
	}
	x.Put("b", value(0, "newer"), 6)
	for _, e := range list {
		x.Delete(e.Name, e.Index)
	}
	if _, ok := x.Size("a"); ok {
		t.Error("a is still there")
	}
	if _, ok := x.Size("b"); !ok {
		t.Error("a newer message went with an expired one")
	}
	for i := range 10_000 { // what is outdated does not pile up
		x.Put("d", value(int64(1000+i), "1"), uint64(10+i))
	}
	if len(x.due) > 1100 {
		t.Errorf("%d in the heap of one", len(x.due))
	}
}

// TestReplacedMessagesAreNoWaste: messages that are replaced take no memory for long,
// and what was found before stays as it was.
func TestReplacedMessagesAreNoWaste(t *testing.T) {
	x := NewIndex(NewBudget(1 << 20))
	names := []string{"a", "a/b", "b", "c/d"}
	var found []Found
	for i := range 10_000 {
		name := names[i%len(names)]
		x.Put(name, value(0, fmt.Sprintf("%s %d %0100d", name, i, 0)), uint64(i+1))
		if i == 4999 {
			found, _, _ = x.Page(NewFilter("#"), "", 10, nil)
		}
	}
	x.Delete("b", math.MaxUint64)
	if n := cap(x.blocks[0].bytes); len(x.blocks) != 1 || n > 4<<10 {
		t.Errorf("%d blocks, the first of %d bytes", len(x.blocks), n)
	}
	now, _, _ := x.Page(NewFilter("#"), "", 10, nil)
	for i, list := range [][]Found{found, now} {
		if want := 4 - i; len(list) != want {
			t.Fatalf("%d found, want %d", len(list), want)
		}
		for _, f := range list {
			at := slices.Index(names, f.Name) + 5000*i + 4996
			if want := value(0, fmt.Sprintf("%s %d %0100d", f.Name, at, 0)); f.Value != string(want) {
				t.Errorf("%s: %q, want %q", f.Name, f.Value, want)
			}
		}
	}
}

// TestAMillionTopics: a million are found by wildcard in less than a second, and
// take less than 100 MB.
func TestAMillionTopics(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a million topics")
	}
	const n = 1_000_000
	before := heap()
	x := NewIndex(NewBudget(64 << 20))
	v := value(0, "payload of 30 bytes, or about.")
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	begin := time.Now()
	for _, i := range order {
		x.Put(fmt.Sprintf("a/%07d/c", i), v, 1)
	}
	t.Logf("a million put in %v, %d MB with the messages", time.Since(begin), (heap()-before)>>20)
	if mb := (heap() - before) >> 20; mb > 100 {
		t.Errorf("%d MB", mb)
	}
	for _, c := range []struct {
		filter string
		want   int
	}{{"#", n}, {"a/#", n}, {"a/+/c", n}, {"+/+/c", n}, {"a/+/d", 0}, {"+/0500000/#", 1}} {
		f, from, more := NewFilter(c.filter), "", true
		got := 0
		var page []Found
		begin := time.Now()
		for more {
			page, from, more = x.Page(f, from, 256, page[:0])
			got += len(page)
		}
		took := time.Since(begin)
		t.Logf("%-12s %7d found in %v", c.filter, got, took)
		if got != c.want || took > 20*time.Second { // pages that start over take minutes
			t.Errorf("%s: %d in %v", c.filter, got, took)
		}
	}
	runtime.KeepAlive(x)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
