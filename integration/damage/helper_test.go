// Package damage breaks files of a stopped node and tests what its clients see then,
// and what `trivium recover` says and does.
package damage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

var must = harness.Must

// files lists the files of a folder of the node's directory.
func files(t *testing.T, b *harness.Broker, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(b.Dir, pattern))
	must(t, err)
	if len(list) == 0 {
		t.Fatalf("there is no %s", pattern)
	}
	slices.Sort(list)
	return list
}

// flip changes a byte of a file; at is its place, negative: in the middle.
func flip(t *testing.T, name string, at int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	if at < 0 {
		at = info.Size() / 2
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b[:], at)
	must(t, err)
}

// flipAt changes the byte behind the first place of a file that says marker.
func flipAt(t *testing.T, name, marker string) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	at := bytes.Index(data, []byte(marker))
	if at < 0 {
		t.Fatalf("%s has no %q", name, marker)
	}
	flip(t, name, int64(at+len(marker)))
}

// numbered is the body of message i; with filler it is 600 KiB.
func numbered(i int, filler bool) []byte {
	body := fmt.Appendf(nil, "message-%05d ", i)
	if filler {
		body = append(body, bytes.Repeat([]byte{'.'}, 600<<10)...)
	}
	return body
}

// sealed fills a topic over Kafka, one batch per record, until there is a segment, and
// returns how many records that took.
func sealed(t *testing.T, b *harness.Broker, topic string) (count int) {
	t.Helper()
	c := b.DialKafka(t, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for {
		for range 20 {
			must(t, c.ProduceSync(context.Background(), &kgo.Record{Value: numbered(count, true)}).FirstErr())
			count++
		}
		if list, err := filepath.Glob(filepath.Join(b.Dir, "placement-1", "segments", "*.seg")); err != nil || len(list) > 0 {
			must(t, err)
			return count
		}
		if count > 1000 {
			t.Fatal("no segment is written")
		}
	}
}

// metrics is what the node tells of itself.
func metrics(t *testing.T, b *harness.Broker) string {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTP + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}

// shows checks that the metrics have lines that begin so.
func shows(t *testing.T, b *harness.Broker, lines ...string) {
	t.Helper()
	text := metrics(t, b)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
