package log

import (
	"sync"
	"sync/atomic"
)

// Cache keeps bytes that can be had again, at a price: bodies of log entries
// (from the WAL), batches and index pages of segments, decompressed batches.
// One cache serves all logs of a node and bounds them together, in bytes.
// What it evicts stays valid for those who still hold it.
//
// Eviction is second chance: what was used since its last turn gets another.
type Cache struct {
	max int64

	mu     sync.Mutex
	size   int64
	ring   item // root of a ring, newest next
	blocks map[blockKey]*item
}

// item is something that the cache may evict. prev, next and size belong to
// Cache.mu; data and used do not.
type item struct {
	prev, next *item
	size       int64
	used       atomic.Bool
	data       atomic.Pointer[[]byte] // nil once evicted
	key        blockKey               // zero for a body, which is found by its owner
}

// blockKey names a block by where its bytes come from.
type blockKey struct {
	log   *Log
	kind  blockKind
	index uint64 // segment or log entry
	pos   int64  // position in it
}

type blockKind uint8

const (
	blockPage    blockKind = iota + 1 // index page of a segment
	blockBatch                        // batch of a segment, decompressed
	blockRecords                      // record section of a head batch, decompressed
)

// itemOverhead is the memory an item costs beside its data.
const itemOverhead = 128

// DefaultCacheBytes is the size of a cache made without one.
const DefaultCacheBytes = 64 << 20

// NewCache makes a cache of max bytes; 0 means DefaultCacheBytes.
func NewCache(max int64) *Cache {
	if max <= 0 {
		max = DefaultCacheBytes
	}
	c := &Cache{max: max, blocks: make(map[blockKey]*item)}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// Bytes is what the cache holds.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// get returns the item's bytes, or nil.
func (it *item) get() []byte {
	p := it.data.Load()
	if p == nil {
		return nil
	}
	if !it.used.Load() {
		it.used.Store(true)
	}
	return *p
}

// put gives an item its bytes and makes room for it.
func (c *Cache) put(it *item, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link(it, data)
}

func (c *Cache) link(it *item, data []byte) {
	if it.next != nil {
		c.unlink(it)
	}
	it.data.Store(&data)
	it.size = int64(cap(data)) + itemOverhead
	it.prev, it.next = &c.ring, c.ring.next
	it.prev.next, it.next.prev = it, it
	c.size += it.size
	c.evict(it)
}

// evict makes room, but never of the newest item: it is being used.
func (c *Cache) evict(newest *item) {
	for c.size > c.max {
		it := c.ring.prev
		if it == newest || it == &c.ring {
			return
		}
		if it.used.Swap(false) {
			it.prev.next, it.next.prev = it.next, it.prev
			it.prev, it.next = &c.ring, c.ring.next
			it.prev.next, it.next.prev = it, it
			continue
		}
		c.unlink(it)
	}
}

func (c *Cache) unlink(it *item) {
	it.prev.next, it.next.prev = it.next, it.prev
	it.prev, it.next = nil, nil
	it.data.Store(nil)
	c.size -= it.size
	if it.key.log != nil {
		delete(c.blocks, it.key)
	}
}

// remove drops an item that nobody needs any more.
func (c *Cache) remove(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.next != nil {
		c.unlink(it)
	}
}

// block returns the bytes of a block, reading them when they are not cached.
// Several readers of one missing block may read it at the same time.
func (c *Cache) block(key blockKey, read func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	if it := c.blocks[key]; it != nil {
		data := it.get()
		c.mu.Unlock()
		return data, nil
	}
	c.mu.Unlock()
	data, err := read()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[key] == nil {
		it := &item{key: key}
		c.blocks[key] = it
		c.link(it, data)
	}
	return data, nil
}

// forget drops all blocks of a log, when it is closed.
func (c *Cache) forget(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, it := range c.blocks {
		if key.log == l {
			c.unlink(it)
		}
	}
}
