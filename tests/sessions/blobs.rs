//! Blob stores.

use std::fs;

use zidane::session::{BlobError, BlobStore, DirectoryBlobStore, MemoryBlobStore, offload_media, restore_media};
use zidane::storage::StorageError;
use zidane::types::{
    Document, Extra, Media, MediaSource, Resource, ResourceContent, SessionContentBlock, ToolResultBlock,
    ToolResultContent, ToolStatus,
};

use crate::folder::Folder;

async fn keeps_bytes(store: &dyn BlobStore) {
    let contents = [vec![], vec![0], b"hello".to_vec(), vec![255; 10_000_000]];
    for content in &contents {
        let key = store.put(content.clone()).await.unwrap();
        assert_eq!(store.put(content.clone()).await.unwrap(), key, "the same content has the same key");
        assert_eq!(store.get(&key, content.len() as u64).await.unwrap().as_ref(), Some(content));
        if !content.is_empty() {
            let error = store.get(&key, content.len() as u64 - 1).await.unwrap_err();
            assert!(matches!(error, BlobError::TooLarge { .. }), "{error}");
        }
    }
    let key = store.put(b"hello".to_vec()).await.unwrap();
    assert!(store.delete(&key).await.unwrap());
    assert!(!store.delete(&key).await.unwrap());
    assert_eq!(store.get(&key, 100).await.unwrap(), None);
    for bad in ["", "x", "../../etc/passwd", "/etc/passwd", &key.to_uppercase(), &format!("{key}/../{key}"), "a\u{0}"] {
        assert!(matches!(store.get(bad, 100).await, Err(BlobError::InvalidKey { .. })), "{bad}");
        assert!(matches!(store.delete(bad).await, Err(BlobError::InvalidKey { .. })), "{bad}");
    }
}

#[tokio::test]
async fn memory_keeps_bytes() {
    keeps_bytes(&MemoryBlobStore::new()).await;
}

#[tokio::test]
async fn a_folder_keeps_bytes() {
    let folder = Folder::new("blobs");
    keeps_bytes(&DirectoryBlobStore::new(folder.join("made"))).await;
}

#[tokio::test]
async fn changed_bytes_are_noticed() {
    let folder = Folder::new("blobs");
    let store = DirectoryBlobStore::new(&*folder);
    let key = store.put(b"hello".to_vec()).await.unwrap();
    let path = folder.join(&key[..2]).join(format!("{key}.blob"));
    for bad in [b"hellp".as_slice(), b"hell", b""] {
        fs::write(&path, bad).unwrap();
        let error = store.get(&key, 100).await.unwrap_err();
        assert!(matches!(error, BlobError::Storage(StorageError::Corrupt { .. })), "{error}");
        // Putting the content again does not trust what is there.
        let again = store.put(b"hello".to_vec()).await.unwrap();
        assert_eq!(store.get(&again, 100).await.unwrap().as_deref(), Some(b"hello".as_slice()));
        store.delete(&again).await.unwrap();
    }
}

#[tokio::test]
async fn a_blob_that_is_too_large_is_not_kept() {
    let folder = Folder::new("blobs");
    let store = DirectoryBlobStore::new(folder.join("made")).max_bytes(10);
    let error = store.put(vec![0; 11]).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { bytes: 11, limit: 10, .. }), "{error}");
    assert!(!folder.join("made").exists());
    store.put(vec![0; 10]).await.unwrap();
}

#[tokio::test]
async fn many_putters_at_once_agree() {
    let folder = Folder::new("blobs");
    let store = DirectoryBlobStore::new(&*folder);
    let puts = (0..40_u8).map(|n| store.put(vec![n % 4; 1_000]));
    let keys = futures::future::join_all(puts).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(key, &keys[n % 4]);
        assert_eq!(store.get(key, 1_000).await.unwrap(), Some(vec![n as u8 % 4; 1_000]));
    }
}

#[tokio::test]
async fn media_goes_to_the_store_and_comes_back_as_it_was() {
    let store = MemoryBlobStore::new();
    let large = || Media::bytes("image/png", vec![7; 900]);
    let result = ToolResultBlock {
        call_id: "1".into(),
        name: "look".into(),
        input: None,
        output: vec![
            ToolResultContent::text("x".repeat(5_000)),
            ToolResultContent::Image(large()),
            ToolResultContent::Audio(Media::bytes("audio/wav", vec![8; 900])),
            ToolResultContent::Video(Media::url("https://example.org/v")),
            ToolResultContent::Resource(Resource::new("a", ResourceContent::Blob("QUFB".repeat(400)))),
            ToolResultContent::Resource(Resource::new("b", ResourceContent::Text("x".repeat(5_000)))),
        ]
        .into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    };
    let original = vec![
        SessionContentBlock::text("x".repeat(5_000)),
        SessionContentBlock::Image(large()),
        SessionContentBlock::Image(Media::bytes("image/png", [1, 2, 3])),
        SessionContentBlock::Document(Document::pdf("a.pdf", vec![9; 900])),
        // Not the one way to write these bytes: it would not come back the same.
        SessionContentBlock::Image(Media::base64("image/png", "QUF\n".repeat(400))),
        SessionContentBlock::Image(Media::base64("image/png", format!("{}QR==", "QUFB".repeat(400)))),
        SessionContentBlock::ToolResult(result),
    ];
    let mut content = original.clone();
    assert_eq!(offload_media(&mut content, &store, 1_000).await.unwrap(), 5);
    let SessionContentBlock::Image(Media { source: MediaSource::Ref(key), media_type, .. }) = &content[1].clone()
    else {
        panic!("{:?}", content[1])
    };
    assert_eq!((store.get(key, 900).await.unwrap(), media_type.as_deref()), (Some(vec![7; 900]), Some("image/png")));
    for same in [0, 2, 4, 5] {
        assert_eq!(content[same], original[same]);
    }
    assert_eq!(offload_media(&mut content, &store, 1_000).await.unwrap(), 0);
    assert!(serde_json::to_string(&content).unwrap().len() < serde_json::to_string(&original).unwrap().len() - 4_000);

    let mut restored = content.clone();
    assert!(restore_media(&mut restored, &store, 10_000).await.unwrap().is_empty());
    assert_eq!(restored, original);
    let error = restore_media(&mut content.clone(), &store, 899).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { .. }), "{error}");
    store.delete(key).await.unwrap();
    let key = key.clone();
    let mut restored = content.clone();
    assert_eq!(restore_media(&mut restored, &store, 10_000).await.unwrap(), [key.clone(), key]);
    assert_eq!(restored[1], content[1]);
    assert_eq!(restored[3], original[3]);
}
