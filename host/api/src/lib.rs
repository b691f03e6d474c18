//! Objects of crawl.example.com and their validation rules; no IO
