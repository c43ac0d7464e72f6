package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestSend: a checkpoint with the files that belong to it comes to another store as it
// is, read in any pieces; one that is cut or changed does not.
func TestSend(t *testing.T) {
	fs := vfs.NewMem()
	s, err := Open(fs, "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(); !errors.Is(err, ErrNone) {
		t.Fatalf("nothing was sent: %v", err)
	}
	f, err := fs.Create("beside")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("beside"), 0); err != nil {
		t.Fatal(err)
	}
	meta := Meta{Index: 7, Term: 3, Configuration: []byte("who is in it"), ConfigurationIndex: 5}
	payload := bytes.Repeat([]byte("payload"), 1000)
	if err := s.Write(meta, func(w io.Writer) error { _, err := w.Write(payload); return err }); err != nil {
		t.Fatal(err)
	}
	s.Attach(func(Meta, io.Reader) ([]string, error) { return []string{"beside"}, nil })
	sent, err := s.Send()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, sent.Size())
	for at := 0; at < len(all); at += 999 {
		n, err := sent.ReadAt(all[at:min(at+999, len(all))], int64(at))
		if n < min(999, len(all)-at) && err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := sent.ReadAt(make([]byte, 10), sent.Size()-4); n != 4 || err != io.EOF {
		t.Fatal(n, err)
	}
	if err := sent.Close(); err != nil {
		t.Fatal(err)
	}

	other, err := Open(fs, "d")
	if err != nil {
		t.Fatal(err)
	}
	w, err := other.Receive(bytes.NewReader(all))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	got, r, err := other.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || string(b) != string(payload)+"beside" || got.ID() != meta.ID() || got.ConfigurationIndex != 5 || string(got.Configuration) != "who is in it" {
		t.Fatalf("%+v, %d bytes, %v", got, len(b), err)
	}
	for _, n := range []int{0, 7, 20, headerSize + 9, len(all) - 1} {
		if _, err := other.Receive(bytes.NewReader(all[:n])); err == nil {
			t.Fatalf("%d bytes of it were taken", n)
		}
	}
	all[8+headerSize] ^= 1
	if _, err := other.Receive(bytes.NewReader(all)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("another configuration: %v", err)
	}
	if names, _ := fs.List("d"); len(names) != 1 {
		t.Fatal(names)
	}
}
