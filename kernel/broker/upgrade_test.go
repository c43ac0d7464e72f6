package broker

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// facts are what the maker of a fixture has written down.
type facts struct {
	Begun    time.Time
	Offset   OffsetCommit
	Producer int64
}

// unpack unpacks a fixture. Log files have been packed without the zeros behind what
// was written, which are put back: that is how they are reserved.
func unpack(t *testing.T, name, dir string) (f facts) {
	t.Helper()
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	zip, err := gzip.NewReader(file)
	must(t, err)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		b, err := io.ReadAll(r)
		must(t, err)
		must(t, os.WriteFile(path, b, 0o640))
		if strings.HasSuffix(path, ".wal") {
			must(t, os.Truncate(path, 64<<20))
		}
		if h.Name == "facts.json" {
			must(t, json.Unmarshal(b, &f))
		}
	}
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpensFormerDirectory opens directories that an earlier release has written and
// left by a stop or by kill -9, twice each, and finds all of it. testdata/format2 is
// of the commit before the first change of a format (placement state 2, the keyed
// state in the checkpoint): a queue with settled and unsettled records in segments and
// log, two checkpoints, exchanges and bindings, a provisional queue, a log topic,
// committed offsets and a session with subscriptions.
func TestOpensFormerDirectory(t *testing.T) {
	dir := t.TempDir()
	f := unpack(t, filepath.Join("testdata", "format2.tar.gz"), dir)
	for _, left := range []string{"clean", "killed"} {
		t.Run(left, func(t *testing.T) {
			start := time.Now()
			clock := func(c *Config) { // little time has passed
				c.Now = func() time.Time { return f.Begun.Add(time.Minute + time.Since(start)) }
			}
			shut(t, open(t, filepath.Join(dir, left), clock))
			b := open(t, filepath.Join(dir, left), clock)
			checkFormer(t, b, f)
			c := connect(t, b)
			publisher(t, c).exchange("", "backlog", "new") // and goes on
			shut(t, b)
			b = open(t, filepath.Join(dir, left), clock)
			if info, err := connect(t, b).Queue("backlog"); err != nil || info.Ready != 1 {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

func checkFormer(t *testing.T, b *Broker, f facts) {
	t.Helper()
	c := connect(t, b)
	for name, want := range map[string]int64{"q": 1, "$share/audit/q": 2, "$share/g/s/#": 1, "waiting": 1} {
		if info, err := c.Queue(name); err != nil || info.Ready != want {
			t.Errorf("%s: %+v, %v, want %d ready", name, info, err, want)
		}
	}
	p := publisher(t, c)
	for exchange, key := range map[string]string{"x": "a.c", "amq.direct": "k"} {
		if n := p.exchange(exchange, key, "3"); n != 1 {
			t.Errorf("%s matched %d", exchange, n)
		}
	}
	for _, group := range []string{"readers", "late"} {
		if got, err := c.Offsets(group); err != nil || !slices.Equal(got, []OffsetCommit{f.Offset}) {
			t.Errorf("offsets of %s: %+v, %v", group, got, err)
		}
	}
	if next, err := c.NewProducerID(soon(t)); err != nil || next <= f.Producer {
		t.Errorf("producer id %d after %d, %v", next, f.Producer, err)
	}
	if kt, ok := c.Topic("log"); !ok || kt.Partitions != 2 || kt.Retention.Age != kernel.RetainWeek.Age || kt.ID != f.Offset.Topic {
		t.Errorf("%+v, %v", kt, ok)
	}
	s, present := attach(t, c, "client", false, time.Hour)
	if !present || len(s.State().Subscriptions) != 3 {
		t.Errorf("session: %v, %+v", present, s.State())
	}
	checkBacklog(t, c)
}

// checkBacklog takes what is unsettled off the queue: of 300 records 0 to 99 and 105
// to 109 were settled; many came after them, and one was the last.
func checkBacklog(t *testing.T, c *Conn) {
	t.Helper()
	info, err := c.Queue("backlog")
	must(t, err)
	m, in := consume(t, c, "backlog", kernel.MemberOptions{AutoSettle: true}, 1<<20)
	got := in.wait(t, int(info.Ready))
	var want []string
	for i := range 300 {
		if i >= 110 || i >= 100 && i < 105 {
			want = append(want, fmt.Sprintf("b%d %s", i, strings.Repeat("-", 150)))
		}
	}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || got[len(got)-1] != "last" {
		t.Errorf("%d records of the backlog, want the %d that were not settled and those after them", len(got), len(want))
	}
	m.Leave()
}
